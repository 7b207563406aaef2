"""Damage and forgery: bytes flipped, inserted, deleted; headers, numbers, names, nesting forged.

`mutate(random, original)` returns (the content, whether it was only damaged): damage does not
repair checksums, so that a format which has them must notice it.
"""

from __future__ import annotations

import io
import json
import re
import struct
import warnings
import zipfile

NUMBERS = [
    *("-1", "0", "1", "2", "3.9", "1e308", "-1e308", "1e999", "1e-320", "NaN", "Infinity", "inf"),
    *("9" * 25, "9" * 400, "1000000000", "4194304", "2147483648", "9223372036854775808", "1_0"),
    *("true", "null", '"3"', "[]", "{}", "[[]]", "'a'", "(1,)", "0x10", "1L", "-0", "+1", " "),
]
WORDS = [
    *(b"", b" ", b"\0", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"', b"'", b",", b";", b"\t"),
    *(b"\r", b"\n", b"\r\n", b"#", b"\\", b"\\ud800", b"\x1b[2J", b"a" * 3000, b"\xc2\xb2"),
    *(b"label", b"labels", b"logits", b"classes", b"cat", b"__metadata__", b"nan", b"-inf"),
    *(b"\n" * 3000, b"," * 3000, b"[" * 3000, b"(" * 3000, b'{"a":' * 3000),
]
BORDERS = [
    *(
        0,
        0.0,
        -0.0,
        1,
        1.0,
        0.5,
        5e-324,
        1e-300,
        1 - 1e-16,
        1 + 1e-10,
        -1e-9,
        -1e-10,
        -5e-324,
        1e6,
        -1e6,
        9e6,
        1e7,
        1e8,
    ),
    *(1e300, -1e300, 1e301, 1.7e308, "inf"),
]
TOKEN = re.compile(rb"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|[A-Za-z_]\w*")
INTEGERS = [0, 1, 2, 3, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 62, (1 << 64) - 1]


def damaged(random, content):
    """Some bytes changed, inserted, deleted, doubled or cut off."""
    content = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
        size = len(content)
        at, length = random.randrange(size + 1), random.choice((1, 1, 2, 4, 8, 64))
        choice = random.randrange(8)
        if choice <= 2 and size:
            content[random.randrange(size)] ^= 1 << random.randrange(8)
        elif choice == 3 and size:
            content[random.randrange(size)] = random.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif choice == 4:
            content[at:at] = random.randbytes(length)
        elif choice == 5:
            del content[at : at + length]
        elif choice == 6:
            content[at:at] = content[at : at + length]
        else:
            del content[at:]
    return bytes(content)


def overwritten(random, content, start=0):
    """A field of 1, 2, 4 or 8 bytes set to a number at a border."""
    content = bytearray(content)
    for _ in range(random.choice((1, 1, 2))):
        width = random.choice((1, 2, 4, 8))
        at = random.randrange(start, max(len(content) - width, start + 1))
        value = random.choice(INTEGERS) & ((1 << 8 * width) - 1)
        content[at : at + width] = value.to_bytes(width, random.choice(("little", "big")))
    return bytes(content)


def retold(random, text):
    """Text with a number, a word or a stretch of it replaced."""
    choice = random.randrange(6)
    tokens = list(TOKEN.finditer(text))
    if choice <= 2 and tokens:
        token = random.choice(tokens)
        new = random.choice(NUMBERS).encode() if choice < 2 else random.choice(WORDS)
        return text[: token.start()] + new + text[token.end() :]
    at = random.randrange(len(text) + 1)
    if choice == 3:
        return text[:at] + random.choice(WORDS) + text[at:]
    lines = text.split(b"\n")
    first, second = random.randrange(len(lines)), random.randrange(len(lines))
    if choice == 4:
        lines[first], lines[second] = lines[second], lines[first]
    else:
        lines[first : first + random.randrange(2)] = [lines[second]] * random.randrange(1, 4)
    return b"\n".join(lines)


# --- JSON ---------------------------------------------------------------------------------------


def values():
    return [
        *(None, True, False, -1, 0, 1, 2, 3, 4, 3.0, 3.9, "3", "", "inf", "nan", "-inf", [], {}),
        *(1e308, -1e308, 5e-324, 10**9, 4194304, 10**30, 10**400, [[]], [0], [9, 9, 9], "logits"),
        *([0.5] * 3, [[0.5] * 3] * 3, [1.0, 0.5, 0.0], [[1.0, 0.5, 0.0]] * 3, [-1.0, 1.0, 1.0]),
        *("\ud800", "matrix", "platt", "beta", "isotonic", "F64", "I8", "BF16", "34", [3, 12]),
    ]


def forged_tree(random, tree):
    """A tree of JSON with one node replaced, removed, renamed or nested."""
    if isinstance(tree, dict) and tree and random.random() < 0.85:
        key = random.choice(list(tree))
        choice = random.randrange(8)
        rest = {name: value for name, value in tree.items() if name != key}
        if choice == 0:
            return rest
        if choice == 1:
            return {**rest, random.choice(["", "labels", "logits", key + "x"]): tree[key]}
        if choice == 2:
            return {**tree, "more": tree[key]}
        return {**tree, key: forged_tree(random, tree[key])}
    if isinstance(tree, list) and tree and random.random() < 0.7:
        at = random.randrange(len(tree))
        choice = random.randrange(6)
        if choice == 0:
            return tree[:at] + tree[at + 1 :]
        if choice == 1:
            return tree[::-1]
        if choice == 2:
            return [*tree, tree[at]]
        return [*tree[:at], forged_tree(random, tree[at]), *tree[at + 1 :]]
    if type(tree) in (int, float) and random.random() < 0.4:
        return random.choice([-tree, tree + 1, tree * 2, tree / 2, tree * 1e300, float(tree)])
    return random.choice(values())


def forged_number(random, tree):
    """A tree of JSON with one of its numbers moved to a border of what may be read."""
    if isinstance(tree, dict) and tree:
        key = "parameters" if "parameters" in tree else random.choice(list(tree))
        return {**tree, key: forged_number(random, tree[key])}
    if isinstance(tree, list) and tree:
        at = random.randrange(len(tree))
        return [*tree[:at], forged_number(random, tree[at]), *tree[at + 1 :]]
    return random.choice(BORDERS)


def forged_json(random, content):
    if random.random() < 0.5:
        tree = json.loads(content)
        for _ in range(random.choice((1, 1, 2, 5))):
            tree = forged_number(random, tree)
        return json.dumps(tree).encode()
    text = json.dumps(forged_tree(random, json.loads(content))).encode()
    return retold(random, text) if random.random() < 0.3 else text


# --- binary formats -------------------------------------------------------------------------------


def forged_npy(random, content):
    """The header rewritten, of the right or a wrong length."""
    (length,) = struct.unpack("<H", content[8:10])
    header, data = content[10 : 10 + length], content[10 + length :]
    header = retold(random, header) if random.random() < 0.9 else header
    shape = random.choice(
        ["(-1, 4)", "(3, 12)", "(12, 3, 1)", "(36,)", "()", "(0, 3)", "(12, 0)", "(1000000000, 3)"]
    )
    if random.random() < 0.3:
        header = re.sub(rb"\([^)]*\)", shape.encode(), header)
    if random.random() < 0.2:
        data = data[: random.randrange(len(data) + 1)] + bytes(random.choice((0, 0, 8, 4096)))
    declared = len(header) if random.random() < 0.9 else random.choice((0, 10, 60000))
    version = b"\x01\x00" if random.random() < 0.8 else random.choice((b"\x02\x00", b"\x03\x00"))
    width = 2 if version == b"\x01\x00" else 4
    return b"\x93NUMPY" + version + (declared & 0xFFFF).to_bytes(width, "little") + header + data


def forged_npz(random, content):
    """Members forged, left out, renamed or doubled, in a zip whose checksums are right."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at = random.randrange(len(members))
    name, data = members[at]
    choice = random.randrange(8)
    if choice <= 3:
        members[at] = name, forged_npy(random, data)
    elif choice == 4:
        members[at] = name, data + bytes(random.choice((1, 100, 4 << 20)))
    elif choice == 5:
        others = ("labels", "logits", "logits.npy", "classes.npy", "", "/", "a\\b")
        members[at] = random.choice(others), data
    elif choice == 6:
        members[at] = name, damaged(random, data)
    else:
        members.append((name, members[0][1]))
    method = random.choice((0, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return zip_records(random, out.getvalue()) if random.random() < 0.3 else out.getvalue()


def zip_records(random, content):
    """A field in one of the records of a zip set to a number at a border."""
    places = [match.start() for match in re.finditer(rb"PK[\x01\x03\x05][\x02\x04\x06]", content)]
    content = bytearray(content)
    at, width = random.choice(places) + random.randrange(4, 46), random.choice((1, 2, 4))
    value = random.choice((*INTEGERS, 1000, 1 << 20, 1 << 30)) & ((1 << 8 * width) - 1)
    content[at : at + width] = value.to_bytes(width, "little")
    return bytes(content)


def forged_safetensors(random, content):
    length = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + length], content[8 + length :]
    header = forged_json(random, header) if random.random() < 0.8 else retold(random, header)
    if random.random() < 0.2:
        data = data[: random.randrange(len(data) + 1)] + bytes(random.choice((0, 4, 100)))
    declared = len(header) if random.random() < 0.9 else random.choice(INTEGERS)
    return struct.pack("<Q", declared & ((1 << 64) - 1)) + header + data


def forged_parquet(random, content):
    """Fields of the metadata at the end, or of a page's header, forged."""
    length = int.from_bytes(content[-8:-4], "little")
    start = len(content) - 8 - length if random.random() < 0.8 else 4
    content = overwritten(random, content, start)
    if random.random() < 0.3:
        tokens = [match for match in TOKEN.finditer(content) if match.start() >= start]
        token = random.choice(tokens)
        word = bytes(random.choice(b"abclogits\0\xff") for _ in token[0])
        content = content[: token.start()] + word + content[token.end() :]
    return content


FORGERS = {
    "npy": forged_npy,
    "npz": forged_npz,
    "safetensors": forged_safetensors,
    "parquet": forged_parquet,
    "json": forged_json,
    "text": retold,
}


def mutate(random, original):
    """(the content, whether it was only damaged, its checksums left as they were)."""
    choice = random.random()
    if choice < 0.35:
        return damaged(random, original.content), True
    if choice < 0.45:
        return overwritten(random, original.content), True
    content = original.content
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of zipfile, about a name that is written twice
                content = FORGERS[original.kind](random, content)
        except Exception:  # forged beyond what the forger itself can parse: as good as any
            break
    return content, False
