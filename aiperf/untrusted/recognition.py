"""Names of what files hold, by their first bytes: for messages about files that are something else.

A name can say anything, and the parser that was asked knows only its own format. The signatures
are those of the formats' specifications.
"""

import codecs
import re
import stat
import zipfile
from pathlib import Path

HEAD_BYTES = 1024
"""A tar archive has its signature at byte 257; a page may begin with a comment."""

SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"BM", "a BMP image"),
    (0, b"II*\0", "a TIFF image"),
    (0, b"MM\0*", "a TIFF image"),
    (8, b"WEBP", "a WebP image"),
    (4, b"ftypavif", "an AVIF image"),
    (4, b"ftyphei", "a HEIC image"),
    (4, b"ftypmif1", "a HEIC image"),
    (4, b"ftyp", "a video (MP4)"),
    (0, b"\0\0\0\x0cjP  ", "a JPEG 2000 image"),
    (0, b"\xff\x0a", "a JPEG XL image"),
    (0, b"\0\0\0\x0cJXL ", "a JPEG XL image"),
    (0, b"\0\x05\x16\x07", "the metadata of a file on a Mac (AppleDouble)"),
    (0, b"\0\x05\x16\0", "the metadata of a file on a Mac (AppleSingle)"),
    (0, b"\0\0\0\1Bud1", "the settings of a folder on a Mac (.DS_Store)"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (0, b"CDF\x01", "a NetCDF file"),
    (0, b"CDF\x02", "a NetCDF file"),
    (0, b"CDF\x05", "a NetCDF file"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"PAR1", "a Parquet file"),
    (0, b"ARROW1", "an Arrow file"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (0, b"GGUF", "a GGUF model"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"PK\x05\x06", "an empty ZIP archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x1f\x8b", "packed by gzip"),
    (0, b"BZh", "packed by bzip2"),
    (0, b"\xfd7zXZ\0", "packed by xz"),
    (0, b"\x28\xb5\x2f\xfd", "packed by zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x7fELF", "a program"),
    (0, b"\x80\x02", "a pickle of Python"),
    (0, b"\x80\x03", "a pickle of Python"),
    (0, b"\x80\x04", "a pickle of Python"),
    (0, b"\x80\x05", "a pickle of Python"),
    (0, b"\x78\x01", "packed by zlib"),
    (0, b"\x78\x9c", "packed by zlib"),
    (0, b"\x78\xda", "packed by zlib"),
    (0, b"8BPS", "a Photoshop image"),
    (0, b"\0\0\1\0", "an icon (ICO)"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document of Microsoft Office"),
    (0, b"version https://git-lfs", "a pointer of Git LFS, without the file itself"),
)
"""Place and bytes of signatures, and what a file with them is. The first match counts."""

_PAGE = re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype html|html|head|body)", re.IGNORECASE | re.DOTALL)
_TEXT = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]*")

_BY_MEMBER: tuple[tuple[str, str], ...] = (
    ("model.weights.h5", "a Keras model"),
    ("data.pkl", "a model of PyTorch"),
    ("data.npy", "arrays of NumPy (.npz)"),
    (".npy", "arrays of NumPy (.npz)"),
    ("saved_model.pb", "a ZIP archive of a TensorFlow SavedModel"),
    ("run.json", "a ZIP archive of a run"),
)
"""Ends of names in a ZIP archive, and what one with such a member is."""

_BY_SUFFIX = {
    ".onnx": "an ONNX model",
    ".pb": "a graph of TensorFlow",
    ".safetensors": "weights (safetensors)",
    ".index": "the index of a TensorFlow checkpoint",
    ".lmdb": "an LMDB database",
    ".mdb": "an LMDB database",
    ".rec": "records of MXNet (RecordIO)",
    ".tfrecord": "records of TensorFlow (TFRecord)",
    ".csv": "a table (CSV)",
}
"""Names of formats without a signature."""


def described(head: bytes, name: str = "") -> str:
    """Describe a file by its first bytes, and by its name if they say nothing: "a PNG image"."""
    if not head:
        return "empty"
    for place, signature, words in SIGNATURES:
        if head.startswith(signature, place):
            return words
    if not head.strip(b"\0"):
        return "nothing but zeros"
    return _BY_SUFFIX.get(Path(name).suffix.lower()) or _text(head)


def _text(head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # The head may have been cut within a character, which has two bytes at least.
        head = head[: len(head) & ~1].decode("utf-16", "replace").encode()
    head = head.removeprefix(codecs.BOM_UTF8)
    if _PAGE.match(head):
        return "a page of HTML"
    for start, words in (
        (b"<svg", "an SVG image"),
        (b"{", "a document of JSON"),
        (b"[", "a document of JSON"),
        (b"<?xml", "a document of XML"),
    ):
        if head.lstrip().startswith(start):
            return words
    return "text" if _TEXT.fullmatch(head) else "of no known format"


def described_file(path: Path) -> str:
    """Describe a file or a folder. Raises OSError if it cannot be read."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        return "a folder"
    if not stat.S_ISREG(mode):
        return "not a file (a pipe, socket or device)"
    with path.open("rb") as stream:
        words = described(stream.read(HEAD_BYTES), path.name)
    return _archive(path) if words == "a ZIP archive" else words


def _archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception:  # of any kind: zipfile raises what it comes across
        return "a damaged ZIP archive"
    for end, words in _BY_MEMBER:
        if any(name.endswith(end) for name in names):
            return words
    return "a ZIP archive"
