"""Passes on a real cluster: the same bits for every number of workers, and after one has died."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import dask.array as da
import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster
from source_parts import cut, sample

import hotmax as hm
from hotmax._backends import dask_tasks
from hotmax._backends.dask_tasks import DaskRunner
from hotmax.calibration import assessment, temperature
from hotmax.view.cli import main

Z, Y = sample(9000)

pytestmark = pytest.mark.slow  # processes that import hotmax, several times


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0"
    ) as made:
        yield made


@pytest.fixture
def client(cluster):
    with Client(cluster) as made:
        yield made


@pytest.fixture
def large(monkeypatch):
    monkeypatch.setattr(temperature, "MOST_IN_MEMORY", 1000)
    monkeypatch.setattr(assessment, "MOST_IN_MEMORY", 1000)
    monkeypatch.setattr(temperature, "SUBSAMPLE_ENTRIES", 20_000)


def test_workers_give_the_bits_of_an_array(large, cluster, client):
    want = hm.calibration.fit_temperature(Z, Y), hm.calibration.evaluate(Z, Y)
    lazy = da.from_array(Z, chunks=(1777, 2)), da.from_array(Y, chunks=1000)
    assert hm.calibration.fit_temperature(*lazy) == want[0]
    source = cut(Z, Y, 1)
    source.runner = DaskRunner(client)
    assert hm.calibration.fit_temperature(source) == want[0]
    assert str(hm.calibration.evaluate(source)) == str(want[1])
    assert client.submit(hm.get_threads).result() == 1
    for workers in (1, 4):
        cluster.scale(workers)
        client.wait_for_workers(workers)
        assert hm.calibration.fit_temperature(source) == want[0]
    cluster.scale(2)


def test_bad_data_is_told_at_once_and_not_retried(client, tmp_path):
    wrong = Y.copy()
    wrong[5000] = 4
    source = cut(Z, wrong, 2, folder=str(tmp_path))
    source.runner = DaskRunner(client)
    with pytest.raises(ValueError, match=r"part \d+.*must lie in 0..3, got 4 in row"):
        hm.calibration.evaluate(source)
    read = [name.split("-")[1] for name in os.listdir(tmp_path)]
    assert len(read) == len(set(read))


@pytest.mark.parametrize("function", ["evaluate", "fit_temperature", "report"])
def test_a_worker_that_is_killed_costs_no_bit(large, client, tmp_path, function):
    """In the last pass: the parts that earlier passes read are known by then."""
    call = hm.report if function == "report" else getattr(hm.calibration, function)

    def numbers(result):
        return result.to_json() if function == "report" else repr(result)

    source = cut(Z, Y, 3, pieces=12, folder=str(tmp_path), pause=0.0)
    source.runner = DaskRunner(client)
    want = numbers(call(Z, Y))
    assert numbers(call(source)) == want
    reads = len(os.listdir(tmp_path))
    slow = cut(Z, Y, 3, pieces=12, folder=str(tmp_path), pause=0.3)
    slow.runner = DaskRunner(client)
    found = []
    thread = threading.Thread(target=lambda: found.append(call(slow)))
    thread.start()
    # The first of the last 10 parts has just begun: there are two workers of one thread.
    wait_for(lambda: len(os.listdir(tmp_path)) > 2 * reads - 10)
    last = max(os.listdir(tmp_path), key=lambda name: int(name.split("-")[2]))
    victim = int(last.split("-")[0])
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(victim))
    assert not found  # it was in the middle of the pass
    thread.join(300)
    assert numbers(found[0]) == want
    assert len(os.listdir(tmp_path)) > 2 * reads  # what it had read was read again


def test_without_workers_a_pass_is_given_up(monkeypatch):
    monkeypatch.setattr(dask_tasks, "GRACE", 0.2)
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=":0") as empty,
        Client(empty) as client,
    ):
        source = cut(Z, Y, 4)
        source.runner = DaskRunner(client)
        with pytest.raises(ConnectionError, match=r"no worker of the cluster .* is left"):
            hm.calibration.evaluate(source)


def scheduler_process(tmp_path):
    """A scheduler in a process of its own, once it listens, and its address."""
    file = tmp_path / "scheduler.json"
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file]
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *map(str, options)],
        stderr=subprocess.DEVNULL,
    )
    wait_for(file.exists)
    wait_for(lambda: file.read_text().strip().endswith("}"))
    return process, json.loads(file.read_text())["address"]


def test_a_scheduler_that_is_killed_is_told_in_one_line(tmp_path):
    """It is killed once the command's tasks have come to it, and there is no worker to run them."""
    np.savez(tmp_path / "a.npz", logits=Z, labels=Y)

    def count(dask_scheduler):  # in here, so that it is sent by value
        return len(dask_scheduler.tasks)

    with contextlib.ExitStack() as stack:
        scheduler, address = scheduler_process(tmp_path)
        stack.callback(scheduler.wait)
        stack.callback(scheduler.kill)
        watching = stack.enter_context(Client(address))
        command = ["evaluate", str(tmp_path / "a.npz"), "--cluster", address]
        process = subprocess.Popen(
            [sys.executable, "-m", "hotmax", *command], stderr=subprocess.PIPE, text=True
        )
        stack.enter_context(process)
        stack.callback(process.kill)
        wait_for(lambda: process.poll() is not None or watching.run_on_scheduler(count))
        scheduler.kill()
        told = process.communicate(timeout=300)[1].splitlines()
    assert process.returncode == 2, told
    assert [line for line in told if f"the scheduler of the cluster {address} is gone" in line]
    assert len(told) == 1, told


def test_without_workers_a_command_ends_with_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(dask_tasks, "GRACE", 0.2)
    np.savez(tmp_path / "a.npz", logits=Z, labels=Y)
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=":0") as empty:
        for command in ("evaluate", "calibrate", "report"):
            given = [command, str(tmp_path / "a.npz"), "--cluster", empty.scheduler_address]
            assert main(given) == 2
            assert re.fullmatch(
                r".*no worker of the cluster \S+ is left\n", capsys.readouterr().err
            )


def arrays_of(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def test_commands_on_a_cluster(cluster, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    os.mkdir("shards")
    for number, part in enumerate(np.array_split(np.arange(len(Z)), 3)):
        np.savez(f"shards/{number}.npz", logits=Z[part], labels=Y[part])
    np.savez("whole.npz", logits=Z, labels=Y)
    address = cluster.scheduler_address

    def run(*arguments):
        assert main([*arguments]) == 0
        return capsys.readouterr().out

    for command in ("calibrate", "evaluate", "report"):
        options = ["--json"]
        if command == "report":
            options += ["--title", "t", "--out", "report.html", "--force"]
        here = json.loads(run(command, "whole.npz", *options))
        there = json.loads(run(command, "shards", "--cluster", address, *options))
        assert here.pop("source", "a") != there.pop("source", "b")
        assert here == there
    run("calibrate", "whole.npz", "--out", "c.json")
    run("apply", "c.json", "whole.npz", "--out", "p.npz")
    run("apply", "c.json", "shards", "--out", "shards.out", "--cluster", address)
    manifest = json.loads((tmp_path / "shards.out" / "manifest.json").read_text())
    written = [arrays_of(tmp_path / "shards.out" / one["shard"]) for one in manifest["shards"]]
    whole = arrays_of("p.npz")
    for name in ("probabilities", "labels"):
        np.testing.assert_array_equal(np.concatenate([w[name] for w in written]), whole[name])
    assert [one["rows"] for one in manifest["shards"]] == [3000, 3000, 3000]
    assert main(["apply", "c.json", "shards", "--out", "shards.out"]) == 2
    assert "--force overwrites it" in capsys.readouterr().err
    np.savez("shards/3.npz", logits=Z[:9] * np.nan, labels=Y[:9])
    assert main(["apply", "c.json", "shards", "--out", "other", "--cluster", address]) == 2
    assert "3.npz" in capsys.readouterr().err
    assert not [name for name in os.listdir() if "other" in name]  # nor a draft
    assert main(["evaluate", "shards", "--cluster", "tcp://127.0.0.1:1"]) == 2
    assert "does not answer" in capsys.readouterr().err


def wait_for(happens):
    for _ in range(30_000):
        if happens():
            return
        time.sleep(0.01)
    raise AssertionError("it has not happened in five minutes")


def hold_writes():
    """On a worker: writing stops for a second with the file half done."""
    write = hm.io.write

    def slow(out, blocks, **options):
        def later():
            for block in blocks:
                time.sleep(1.0)
                yield block

        return write(out, later(), **options)

    hm.io.write, hm.io.fast_write = slow, write


def hold_no_writes():
    hm.io.write = hm.io.fast_write


def drafts(folder):
    return [name for name in os.listdir(folder) if name.startswith(".")]


def test_sigterm_cancels_what_runs_and_leaves_no_draft(client, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("shards")
    for number in range(8):
        np.savez(f"shards/{number}.npz", logits=Z[:500], labels=Y[:500])
    hm.calibration.TemperatureScaling().fit(Z, Y).save("c.json")
    address = client.scheduler.address
    command = ["apply", "c.json", "shards", "--out", "out", "--cluster", address]
    client.run(hold_writes)
    try:
        with subprocess.Popen([sys.executable, "-m", "hotmax", *command]) as process:
            wait_for(lambda: any(".npz" in n for d in drafts(".") for n in os.listdir(d)))
            process.terminate()
            assert process.wait(300) == 128 + signal.SIGTERM
        assert not drafts(".")
        wait_for(lambda: not any(client.processing().values()))  # what ran has ended, and failed
        assert sorted(os.listdir()) == ["c.json", "shards"]
    finally:
        client.run(hold_no_writes)


def test_apply_without_workers_is_given_up(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dask_tasks, "GRACE", 0.2)
    np.savez("a.npz", logits=Z[:500], labels=Y[:500])
    hm.calibration.TemperatureScaling().fit(Z, Y).save("c.json")
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=":0") as empty:
        address = empty.scheduler_address
        assert main(["apply", "c.json", "a.npz", "--out", "out", "--cluster", address]) == 2
    assert "no worker of the cluster" in capsys.readouterr().err
    assert sorted(os.listdir()) == ["a.npz", "c.json"]
