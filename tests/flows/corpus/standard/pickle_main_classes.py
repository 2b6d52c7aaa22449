import copy
import pickle
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Colour(Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Box:
    name: str
    corner: Point
    colour: Colour = Colour.RED
    tags: list[str] = field(default_factory=list)


def double(x):
    return 2 * x


box = Box("a", Point(1, 2), tags=["x"])
for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
    assert pickle.loads(pickle.dumps(box, protocol)) == box
print(pickle.loads(pickle.dumps(double))(21), copy.deepcopy(box), Box.__module__)
