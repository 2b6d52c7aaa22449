"""Prints the areas of one colour in a PNG: `[[first column, last column, height], ...]`, from left to right."""

import json
import struct
import sys
import zlib
from pathlib import Path


def unfiltered(rows: bytes, width: int, height: int, size: int) -> list[bytearray]:
    """The rows of an image of 8 bits per sample and `size` samples per pixel."""
    length, before, result = width * size, bytearray(width * size), []
    for row in range(height):
        at = row * (length + 1)
        kind, line = rows[at], bytearray(rows[at + 1 : at + 1 + length])
        for i in range(length):
            left = line[i - size] if i >= size else 0
            up, corner = before[i], before[i - size] if i >= size else 0
            if kind == 1:
                line[i] = (line[i] + left) & 255
            elif kind == 2:
                line[i] = (line[i] + up) & 255
            elif kind == 3:
                line[i] = (line[i] + (left + up) // 2) & 255
            elif kind == 4:
                guess = left + up - corner
                near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))
                line[i] = (line[i] + near[2]) & 255
        result.append(line)
        before = line
    return result


def pixels(png: bytes) -> tuple[int, int, list[bytearray]]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n", "not a PNG"
    at, data = 8, b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert (depth, interlaced) == (8, 0) and colour in (2, 6), "another kind of PNG"
        elif kind == b"IDAT":
            data += body
        at += length + 12
    size = 3 if colour == 2 else 4
    return width, size, unfiltered(zlib.decompress(data), width, height, size)


def areas(path: Path, colour: bytes) -> list[list[int]]:
    width, size, rows = pixels(path.read_bytes())
    heights = [0] * width
    for row in rows:
        for column in range(width):
            if row[column * size : column * size + 3] == colour:
                heights[column] += 1
    found: list[list[int]] = []
    for column, height in enumerate(heights):
        if height and found and found[-1][1] == column - 1:
            found[-1][1:] = [column, max(found[-1][2], height)]
        elif height:
            found.append([column, column, height])
    return found


print(json.dumps(areas(Path(sys.argv[1]), bytes.fromhex(sys.argv[2]))))
