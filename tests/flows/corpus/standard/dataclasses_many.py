from dataclasses import asdict, astuple, dataclass, fields, replace


@dataclass(frozen=True, order=True, slots=True, kw_only=True)
class Version:
    major: int
    minor: int = 0


a, b = Version(major=1), Version(major=1, minor=2)
print(a < b, asdict(b), astuple(a), replace(a, minor=7), [f.name for f in fields(a)])
try:
    a.major = 3
except Exception as error:
    print(type(error).__name__, error)
