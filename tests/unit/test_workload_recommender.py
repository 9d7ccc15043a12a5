"""The recommender workload: its network, its clicks, its rate, and that it learns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from workloads import recommender
from workloads.recommender import CLICK, DLRM, Clicks, Options, parse_options

SMALL = ("--rows", "100", "--dim", "4", "--bottom", "8", "--top", "8", "--workers", "0")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SFBENCH_CACHE", str(tmp_path / "cache"))
    # Beside other tests, threads that wait for each other would take many times as long.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def options(*args: str, device_type: str = "cpu") -> Options:
    return parse_options(args, device_type)


def line(label: str, counts: list[str], hashes: list[str]) -> str:
    return "\t".join((label, *counts, *hashes)) + "\n"


class TestNetwork:
    def test_how_many_parameters_there_are(self) -> None:
        # Tables 26 x 100 x 4; below 13-8-4; above (4 + 351)-8-1; each layer with its biases.
        tables = 26 * 100 * 4
        bottom = (13 * 8 + 8) + (8 * 4 + 4)
        top = (355 * 8 + 8) + (8 * 1 + 1)

        network = DLRM(options(*SMALL))

        assert sum(p.numel() for p in network.parameters()) == tables + bottom + top

    @pytest.mark.parametrize("device_type", ["cpu", "cuda"])
    def test_nearly_all_of_them_are_in_the_tables(self, device_type: str) -> None:
        with torch.device("meta"):
            network = DLRM(options(device_type=device_type))

        tables = sum(table.weight.numel() for table in recommender.tables_of(network))
        assert tables > 0.98 * sum(p.numel() for p in network.parameters())

    def test_layers_have_the_names_of_dlrm(self) -> None:
        shapes = {name: tuple(v.shape) for name, v in DLRM(options(*SMALL)).state_dict().items()}

        assert shapes == {
            **{f"emb_l.{i}.weight": (100, 4) for i in range(26)},
            "bot_l.0.weight": (8, 13),
            "bot_l.0.bias": (8,),
            "bot_l.2.weight": (4, 8),
            "bot_l.2.bias": (4,),
            "top_l.0.weight": (8, 355),
            "top_l.0.bias": (8,),
            "top_l.2.weight": (1, 8),
            "top_l.2.bias": (1,),
        }

    def test_every_two_vectors_meet_once(self) -> None:
        # GIVEN a network whose upper part adds up what it gets, with vectors of one number each:
        # the counts' vector is 1, that of category i is i + 2.
        network = DLRM(options("--rows", "1", "--dim", "1", "--workers", "0"))
        network.bot_l = torch.nn.Sequential(torch.nn.Linear(13, 1))
        network.top_l = torch.nn.Sequential(torch.nn.Linear(352, 1))
        with torch.no_grad():
            for i, table in enumerate(recommender.tables_of(network)):
                table.weight.fill_(i + 2)
            for layer in (network.bot_l[0], network.top_l[0]):
                layer.weight.fill_(1)  # type: ignore[union-attr,operator]
                layer.bias.zero_()  # type: ignore[union-attr,operator]
        dense = torch.zeros(2, 13)
        dense[:, 0] = 1

        logits = network(dense, torch.zeros(2, 26, dtype=torch.int64))

        # 1 + the products of all pairs of 1..27: (378^2 - 6930) / 2 = 67,977.
        assert logits.tolist() == [67_978, 67_978]

    def test_gradients_of_the_tables_are_dense(self) -> None:
        network = DLRM(options(*SMALL))

        network(torch.zeros(2, 13), torch.zeros(2, 26, dtype=torch.int64)).sum().backward()

        for table in recommender.tables_of(network):
            assert table.weight.grad is not None
            assert table.weight.grad.layout is torch.strided
            # Only the row that was looked up has one that is not zero.
            assert table.weight.grad[1:].count_nonzero() == 0


class TestClicks:
    def test_a_line_of_criteo(self) -> None:
        counts = ["1", "", "-2", *["0"] * 10]
        hashes = ["68fd1e64", "", "ffffffff", *["0000000a"] * 23]

        assert recommender.parse_click(line("1", counts, hashes)) == (
            1.0,
            [1.0, *[0.0] * 12],
            [0x68FD1E64, 0, 0xFFFFFFFF, *[10] * 23],
        )

    def test_files_become_one(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        # GIVEN 3 lines in two files, more than fit in one chunk.
        monkeypatch.setattr(recommender, "CHUNK_LINES", 2)
        for name, labels in (("b.tsv", "10"), ("a.txt", "0")):
            lines = [line(label, [str(7)] * 13, ["ff"] * 26) for label in labels]
            (tmp_path / name).write_text("".join(lines))
        (tmp_path / "readme.md").write_text("not clicks")

        path = recommender.click_file(tmp_path / "cache", tmp_path)
        batch = Clicks(path, rows=100).__getitems__([2, 0, 1])

        assert batch.label.tolist() == [0, 0, 1]
        assert torch.equal(batch.dense, torch.full((3, 13), math.log(8)))
        # 0xff = 255, in a table of 100 rows.
        assert torch.equal(batch.sparse, torch.full((3, 26), 55))
        assert recommender.click_file(tmp_path / "cache", tmp_path) == path

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ("1\t2\n", "line 2: 2 fields instead of 40"),
            (line("1", ["x"] * 13, ["0"] * 26), "line 2: could not convert"),
            (line("1", ["0"] * 13, ["xyz"] * 26), "line 2: invalid literal"),
        ],
    )
    def test_a_bad_line_is_named_and_leaves_nothing(
        self, tmp_path: Path, bad: str, message: str
    ) -> None:
        good = line("1", ["0"] * 13, ["0"] * 26)
        (tmp_path / "a.txt").write_text(good + bad)

        with pytest.raises(ValueError, match=message):
            recommender.click_file(tmp_path / "cache", tmp_path)

        assert list((tmp_path / "cache").iterdir()) == []

    def test_a_folder_without_clicks_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"no \.txt or \.tsv file"):
            recommender.click_file(tmp_path / "cache", tmp_path)

    def test_files_without_a_line_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").touch()

        with pytest.raises(ValueError, match="holds no click"):
            Clicks(recommender.click_file(tmp_path / "cache", tmp_path), rows=10)

    def test_the_invented_clicks_are_always_the_same(self) -> None:
        clicks = recommender.invented_clicks(2000)

        assert np.array_equal(clicks, recommender.invented_clicks(2000))
        assert clicks.dtype == CLICK
        assert set(np.unique(clicks["label"])) == {0, 1}
        assert 0.2 < clicks["label"].mean() < 0.6

    def test_samples_repeat_over_an_epoch(self, tmp_path: Path) -> None:
        path = tmp_path / "clicks.npy"
        clicks = np.zeros(3, CLICK)
        clicks["label"] = [0, 1, 0]
        np.save(path, clicks)

        dataset = Clicks(path, rows=10, repeat=2)

        assert len(dataset) == 6
        assert dataset.__getitems__([1, 4, 5]).label.tolist() == [1, 1, 0]


def test_the_rate_grows_with_the_global_batch() -> None:
    assert recommender.scaled_lr(1.0, 2048) == 1.0
    assert recommender.scaled_lr(1.0, 8 * 2048) == 8.0


def mean_loss(network: DLRM, clicks: Clicks) -> float:
    batch = clicks.__getitems__(list(range(len(clicks))))
    with torch.no_grad():
        logits = network(batch.dense, batch.sparse)
    return float(torch.nn.functional.binary_cross_entropy_with_logits(logits, batch.label))


def test_the_loss_falls_and_the_weights_are_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(recommender, "GENERATED_CLICKS", 8192)
    chosen = options(*SMALL)
    untrained = recommender.network_for(chosen, torch.device("cpu"))

    args = ("--batch-size", "512", "--lr", "2", "--steps", "100")
    recommender.main([*SMALL, *args, "--save", str(tmp_path / "dlrm.pt")])

    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("recommender: 26 tables of 100 x 4, ")
    assert [text.split()[:2] for text in rest] == [["step", str(20 * i)] for i in range(1, 6)]
    trained = DLRM(chosen)
    trained.load_state_dict(torch.load(tmp_path / "dlrm.pt"))
    clicks = Clicks(recommender.click_file(recommender.cache_dir(), None), chosen.rows)
    assert mean_loss(trained, clicks) < 0.95 * mean_loss(untrained, clicks)
