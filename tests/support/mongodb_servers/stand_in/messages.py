"""MongoDB's messages on a stream: commands are read, answers are written. Values are passed on unchanged. It knows no
command.
"""

import itertools
import struct

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

MSG, REPLY, QUERY = 2013, 1, 2004
CHECKSUM, MORE_TO_COME = 1, 2
# MongoDB's limit.
MAX_MESSAGE = 48_000_000
RAW = CodecOptions(document_class=RawBSONDocument)
# Fields that may be too long for one document and are sent in sections of their own.
SEQUENCES = {"insert": "documents", "update": "updates", "delete": "deletes"}

ids = itertools.count(1)


def fields(document):
    """The fields of a document. Embedded documents stay encoded."""
    return dict(RawBSONDocument(document, RAW))


async def read(reader):
    """The id of the request, its opcode, whether it wants an answer, and the command."""
    length, request, _, op = struct.unpack("<iiii", await reader.readexactly(16))
    if not 16 < length <= MAX_MESSAGE:
        raise EOFError
    body = await reader.readexactly(length - 16)
    if op == QUERY:
        return request, op, True, fields(body[body.index(b"\0", 4) + 9:]) | {"$db": body[4:body.index(b".", 4)].decode()}
    if op != MSG:
        raise EOFError
    flags, at = struct.unpack_from("<I", body)[0], 4
    end = len(body) - 4 * (flags & CHECKSUM)
    command, sequences = {}, {}
    while at < end:
        kind, size = body[at], struct.unpack_from("<i", body, at + 1)[0]
        part = body[at + 1:at + 1 + size]
        if kind == 0:
            command = fields(part)
        else:
            name, documents = part[4:].split(b"\0", 1)
            sequences[name.decode()] = list(documents_in(documents))
        at += 1 + size
    return request, op, not flags & MORE_TO_COME, {**command, **sequences}


def documents_in(data):
    at = 0
    while at < len(data):
        size = struct.unpack_from("<i", data, at)[0]
        yield RawBSONDocument(data[at:at + size], RAW)
        at += size


def answer(op, request, document):
    """An answer in the opcode of the request."""
    data = bson.encode(document)
    if op == QUERY:
        return struct.pack("<iiiiiqii", 36 + len(data), next(ids), request, REPLY, 8, 0, 0, 1) + data
    return struct.pack("<iiiiIB", 21 + len(data), next(ids), request, MSG, 0, 0) + data


def request(command):
    """A request, and its id."""
    sequence = SEQUENCES.get(next(iter(command)))
    data = bson.encode({key: value for key, value in command.items() if key != sequence})
    beside = b""
    if sequence in command:
        documents = b"".join(bson.encode(document) for document in command[sequence])
        beside = b"\1" + struct.pack("<i", 5 + len(sequence) + len(documents)) + sequence.encode() + b"\0" + documents
    number = next(ids)
    return number, struct.pack("<iiiiIB", 21 + len(data) + len(beside), number, 0, MSG, 0, 0) + data + beside
