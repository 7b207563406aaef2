"""Files appear whole or not at all."""

import os
import stat

import pytest

from hotmax._files import whole, write_whole


def test_a_file_appears_only_when_it_is_whole(tmp_path):
    path = tmp_path / "result.txt"
    with whole(path) as file:
        file.write(b"first")
        assert not path.exists()
    assert path.read_bytes() == b"first"


def test_a_failure_leaves_what_was_there(tmp_path):
    path = tmp_path / "result.txt"
    write_whole(path, "before")

    def interrupted():
        with whole(path) as file:
            file.write(b"half of wh")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_an_existing_file_is_left_alone_without_force(tmp_path):
    path = tmp_path / "result.txt"
    write_whole(path, "before")
    with pytest.raises(FileExistsError, match="exists already"):
        write_whole(path, "after", force=False)
    assert path.read_text() == "before"
    write_whole(path, "after", force=True)
    assert path.read_text() == "after"


def test_places_that_cannot_be_written_to(tmp_path):
    with pytest.raises(FileNotFoundError, match="no directory"):
        write_whole(tmp_path / "missing" / "result.txt", "text")
    with pytest.raises(IsADirectoryError, match="is a directory"):
        write_whole(tmp_path, "text")


def test_permissions_are_those_of_an_ordinary_file(tmp_path):
    path, plain = tmp_path / "result.txt", tmp_path / "plain.txt"
    plain.write_text("")
    write_whole(path, "text")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    os.chmod(path, 0o640)
    write_whole(path, "text")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
