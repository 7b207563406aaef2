"""Files appear whole or not at all."""

import errno
import os
import stat

import pytest

from hotmax._core.files import whole, write_whole


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


def test_a_file_that_appears_meanwhile_is_left_alone_without_force(tmp_path):
    path = tmp_path / "result.txt"

    def overtaken():
        with whole(path, force=False) as file:
            file.write(b"mine")
            path.write_text("theirs")

    with pytest.raises(FileExistsError, match=r"result\.txt has appeared in the meantime"):
        overtaken()
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("overtaken", [False, True])
def test_a_file_system_without_links(tmp_path, monkeypatch, overtaken):
    def link(source, target):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), source, None, target)

    monkeypatch.setattr(os, "link", link)
    path = tmp_path / "result.txt"

    def write():
        with whole(path, force=False) as file:
            file.write(b"mine")
            if overtaken:
                path.write_text("theirs")

    if overtaken:
        with pytest.raises(FileExistsError):
            write()
    else:
        write()
    assert path.read_text() == ("theirs" if overtaken else "mine")
    assert list(tmp_path.iterdir()) == [path]


def test_symbolic_links(tmp_path):
    """Without force a link is left alone, wherever it leads; with it, its target is written."""
    target, link = tmp_path / "folder" / "target.txt", tmp_path / "link.txt"
    target.parent.mkdir()
    link.symlink_to(target)
    with pytest.raises(FileExistsError, match=r"link\.txt exists already, a symbolic link to noth"):
        write_whole(link, "text", force=False)
    assert not target.exists()
    for text in ("first", "second"):
        write_whole(link, text, force=True)
        assert link.is_symlink()
        assert target.read_text() == text
    with pytest.raises(FileExistsError, match="exists already, and"):
        write_whole(link, "text", force=False)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["folder", "link.txt", "target.txt"]

    nowhere, circle = tmp_path / "nowhere.txt", tmp_path / "circle.txt"
    nowhere.symlink_to(tmp_path / "missing" / "target.txt")
    with pytest.raises(FileNotFoundError, match=r"no directory .*missing"):
        write_whole(nowhere, "text")
    circle.symlink_to(circle)
    with pytest.raises(OSError, match=r"circle\.txt is a symbolic link that leads back to itself"):
        write_whole(circle, "text")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_what_is_no_file_is_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="pipe is a device or a pipe"):
        write_whole(path, "text")
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_names_as_long_as_they_may_be(tmp_path):
    for name in ("n" * 255, "é" * 127):
        write_whole(tmp_path / name, "text", force=False)
        assert (tmp_path / name).read_text() == "text"


@pytest.mark.skipif(os.name != "posix", reason="file sizes are limited as on POSIX")
@pytest.mark.parametrize("size", [1, 100_000])  # written when it is closed; and before that
def test_a_full_disk_is_named(tmp_path, size):
    import resource

    path = tmp_path / "result.txt"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        with pytest.raises(OSError, match=r"result\.txt") as raised:
            write_whole(path, "x" * size)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc here")
def test_a_directory_that_takes_no_files(tmp_path):
    """The error names the file, and not its draft."""
    with pytest.raises(OSError, match=r"'/proc/result\.txt'"):
        write_whole("/proc/result.txt", "text")


def test_other_errors_name_no_file_that_is_not_theirs(tmp_path):
    def fail():
        with whole(tmp_path / "result.txt"):
            raise OSError(errno.EIO, "of what was read")

    with pytest.raises(OSError, match="of what was read") as raised:
        fail()
    assert raised.value.filename is None
