"""Reads checkpoint files with Python's standard library, in the form that heed writes (docs/checkpoint_format.md).

    entries = read("lm.h5")     {"model/norm.weight": Entry(kind, shape, bytes), "step": ..., "config": ...}

This reader shares no code with heed, so it shows what a program wrote even while heed's own reader is changed. It reads
HDF5's superblock 2, object headers 2, groups with links in their header, contiguous and compact data sets, and strings
of variable length. It checks nothing: heed does.
"""
import struct
from dataclasses import dataclass
from pathlib import Path

LINK_INFO, LINK, SPACE, TYPE, LAYOUT, CONTINUATION = 0x02, 0x06, 0x01, 0x03, 0x08, 0x10
UNDEFINED = 2**64 - 1


@dataclass
class Entry:
    kind: str  # "text", or the class of HDF5's type and its bytes: "1.4" is float32
    shape: tuple
    bytes: bytes


class File:
    def __init__(self, path):
        data = Path(path).read_bytes()
        if data[:8] != b"\x89heed\r\n\x1a":
            raise ValueError(f"{path} is not a checkpoint")
        self.data = data[512:]  # addresses are relative to the end of the header

    def number(self, at, size=8):
        return int.from_bytes(self.data[at:at + size], "little")

    def messages(self, at):
        """The messages of the object header at this address, as pairs of a type and the address of the content."""
        flags = self.data[at + 5]
        place = at + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        size = 1 << (flags & 3)
        chunks = [(place + size, self.number(place, size))]
        for begin, length in chunks:
            at, end = begin, begin + length
            while at + 4 <= end:
                kind, size = self.data[at], self.number(at + 1, 2)
                at += 6 if flags & 4 else 4
                if kind == CONTINUATION:
                    chunks.append((self.number(at) + 4, self.number(at + 8) - 8))  # without "OCHK" and the checksum
                else:
                    yield kind, at
                at += size

    def link(self, at):
        """The name and the address of the object in a link message."""
        flags = self.data[at + 1]
        at += 2 + (1 if flags & 8 else 0) + (8 if flags & 4 else 0) + (1 if flags & 16 else 0)
        size = 1 << (flags & 3)
        length, at = self.number(at, size), at + size
        return self.data[at:at + length].decode(), self.number(at + length)

    def links(self, at):
        """The links of the group at this address, or None for a data set."""
        messages = list(self.messages(at))
        infos = [place for kind, place in messages if kind == LINK_INFO]
        if not infos:
            return None
        heap = infos[0] + 2 + (8 if self.data[infos[0] + 1] & 1 else 0)
        if self.number(heap) != UNDEFINED:
            raise ValueError("a group keeps its links in a fractal heap, as checkpoints of earlier versions do")
        return [self.link(place) for kind, place in messages if kind == LINK]

    def text(self, at):
        """A string of variable length, which is in a global heap."""
        length, place, index = struct.unpack_from("<IQI", self.data, at)
        place += 16
        while self.number(place, 2) != index:
            place += 16 + (self.number(place + 8) + 7) // 8 * 8
        return self.data[place + 16:place + 16 + length]

    def entry(self, at):
        messages = dict(self.messages(at))
        space, kind, layout = messages[SPACE], messages[TYPE], messages[LAYOUT]
        rank = self.data[space + 1]
        shape = struct.unpack_from(f"<{rank}Q", self.data, space + (4 if self.data[space] == 2 else 8))
        code, size = self.data[kind] & 15, self.number(kind + 4, 4)
        if self.data[layout + 1] == 0:  # compact
            place, length = layout + 4, self.number(layout + 2, 2)
        else:
            place, length = self.number(layout + 2), self.number(layout + 10)
        if code == 9:
            return Entry("text", shape, self.text(place))
        return Entry(f"{code}.{size}", shape, self.data[place:place + length] if place != UNDEFINED else b"")


def read(path):
    """All entries of a checkpoint, by their paths."""
    file, entries = File(path), {}

    def visit(at, path):
        links = file.links(at)
        if links is None:
            entries[path] = file.entry(at)
            return
        for name, child in links:
            visit(child, f"{path}/{name}" if path else name)

    visit(file.number(36), "")
    return entries
