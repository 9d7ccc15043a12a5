"""The language workload: its network, its tokens, its rates, and that it learns."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from workloads import language
from workloads.language import GPT, Options, TokenFile, parse_options

SMALL = ("--layers", "2", "--heads", "2", "--width", "16", "--block", "8", "--batch-size", "4")


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


class TestNetwork:
    def test_on_a_gpu_it_is_gpt_2_small(self) -> None:
        with torch.device("meta"):
            network = GPT(options("--vocab", "50257", device_type="cuda"))

        # The figure of the published checkpoint: V C + T C + 12 (12 C^2 + 13 C) + 2 C.
        assert sum(p.numel() for p in network.parameters()) == 124_439_808

    def test_on_a_cpu_it_is_small(self) -> None:
        # 256 x 96 + 64 x 96 + 4 (12 x 96^2 + 13 x 96) + 2 x 96.
        assert sum(p.numel() for p in GPT(options()).parameters()) == 478_272

    def test_layers_have_the_names_of_gpt_2(self) -> None:
        network = GPT(options(*SMALL, "--layers", "1"))

        assert {name: tuple(value.shape) for name, value in network.state_dict().items()} == {
            "wte.weight": (256, 16),
            "wpe.weight": (8, 16),
            "h.0.ln_1.weight": (16,),
            "h.0.ln_1.bias": (16,),
            "h.0.attn.c_attn.weight": (48, 16),
            "h.0.attn.c_attn.bias": (48,),
            "h.0.attn.c_proj.weight": (16, 16),
            "h.0.attn.c_proj.bias": (16,),
            "h.0.ln_2.weight": (16,),
            "h.0.ln_2.bias": (16,),
            "h.0.mlp.c_fc.weight": (64, 16),
            "h.0.mlp.c_fc.bias": (64,),
            "h.0.mlp.c_proj.weight": (16, 64),
            "h.0.mlp.c_proj.bias": (16,),
            "ln_f.weight": (16,),
            "ln_f.bias": (16,),
        }

    def test_a_token_has_no_effect_on_what_comes_before_it(self) -> None:
        torch.manual_seed(0)
        network = GPT(options(*SMALL)).eval()
        tokens = torch.randint(256, (3, 8))
        changed = tokens.clone()
        changed[:, 5] = (changed[:, 5] + 1) % 256

        before, after = network(tokens), network(changed)

        assert before.shape == (3, 8, 256)
        assert torch.equal(before[:, :5], after[:, :5])
        assert (before[:, 5:] != after[:, 5:]).any(dim=-1).all()

    def test_it_starts_without_a_preference(self) -> None:
        torch.manual_seed(0)
        logits = GPT(options(*SMALL))(torch.randint(256, (16, 8)))

        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(256, (128,)))

        # ln 256: every token is as likely as any other.
        assert loss.item() == pytest.approx(math.log(256), abs=0.05)

    def test_dropout_is_for_training_only(self) -> None:
        network = GPT(options(*SMALL, "--dropout", "0.5"))
        tokens = torch.randint(256, (2, 8))

        assert not torch.equal(network(tokens), network(tokens))
        network.eval()
        assert torch.equal(network(tokens), network(tokens))


class TestOptions:
    def test_a_gpu_gets_bfloat16_and_a_cpu_does_not(self) -> None:
        assert options(device_type="cuda").bf16
        assert not options("--no-bf16", device_type="cuda").bf16
        assert not options().bf16

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (("--vocab", "255"), "--vocab must be at least 256"),
            (("--heads", "5"), "--heads must divide --width"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str
    ) -> None:
        with pytest.raises(SystemExit):
            options(*args)

        assert message in capsys.readouterr().err


class TestOptimizer:
    def test_matrices_decay_and_vectors_do_not(self) -> None:
        network = GPT(options(*SMALL))
        decayed, kept = language.adamw(network, options(*SMALL)).param_groups

        assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
        # 2 embeddings and 4 matrices in each of 2 layers; 8 vectors in each and 2 at the end.
        assert {p.dim() for p in decayed["params"]} == {2}
        assert len(decayed["params"]) == 10
        assert {p.dim() for p in kept["params"]} == {1}
        assert len(kept["params"]) == 18

    def test_cosine(self) -> None:
        chosen = options("--warmup-steps", "4", "--decay-steps", "12")

        assert [language.lr_factor(step, chosen) for step in range(5)] == [0.25, 0.5, 0.75, 1, 1]
        # Half of the way from 4 to 12: the mean of 1 and 0.1; from 12 on 0.1.
        assert language.lr_factor(8, chosen) == pytest.approx(0.55)
        assert language.lr_factor(12, chosen) == pytest.approx(0.1)
        assert language.lr_factor(1000, chosen) == pytest.approx(0.1)

    def test_constant(self) -> None:
        chosen = options("--schedule", "constant", "--warmup-steps", "2")

        assert [language.lr_factor(step, chosen) for step in (0, 1, 2, 10**6)] == [0.5, 1, 1, 1]


class TestTokens:
    def test_samples_overlap_and_targets_are_the_tokens_that_follow(self, tmp_path: Path) -> None:
        path = tmp_path / "tokens.u16"
        np.arange(300, dtype="<u2").tofile(path)

        dataset = TokenFile(path, block=100)

        # Starts at 0, 64, 128 and 192; the last needs tokens 192 to 292 of 0 to 299.
        assert len(dataset) == 4
        tokens, targets = dataset[3]
        assert torch.equal(tokens, torch.arange(192, 292))
        assert torch.equal(targets, torch.arange(193, 293))

    @pytest.mark.parametrize(("count", "size"), [(65, 1), (128, 1), (129, 2)])
    def test_how_many_samples_there_are(self, tmp_path: Path, count: int, size: int) -> None:
        path = tmp_path / "tokens.u16"
        np.zeros(count, "<u2").tofile(path)

        assert len(TokenFile(path, block=64)) == size

    def test_a_file_without_a_sample_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "tokens.u16"
        np.zeros(64, "<u2").tofile(path)

        with pytest.raises(ValueError, match="fewer than 65 tokens"):
            TokenFile(path, block=64)

    def test_text_files_become_bytes_in_the_order_of_their_names(self, tmp_path: Path) -> None:
        text = tmp_path / "text"
        (text / "more").mkdir(parents=True)
        (text / "more" / "c.txt").write_text("é")
        (text / "b.txt").write_text("b\n")
        (text / "a.txt").write_text("a")

        path = language.token_file(tmp_path, text)

        assert np.fromfile(path, "<u2").tolist() == [97, 98, 10, 0xC3, 0xA9]
        assert language.token_file(tmp_path, text) == path

    def test_changed_text_is_encoded_anew(self, tmp_path: Path) -> None:
        text = tmp_path / "text"
        text.mkdir()
        (text / "a.txt").write_text("a")
        first = language.token_file(tmp_path, text)
        (text / "a.txt").write_text("ab")

        assert language.token_file(tmp_path, text) != first

    def test_a_folder_without_text_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="no file in it"):
            language.token_file(tmp_path / "cache", tmp_path)

    def test_the_invented_text_is_always_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(language, "GENERATED_WORDS", 1000)

        text = language.invented_text()

        assert text == language.invented_text()
        assert re.fullmatch(rb"([a-z]{2,8}( |\.\n)){1000}", text)


def test_the_loss_falls_and_the_weights_are_saved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(language, "GENERATED_WORDS", 20_000)
    args = (*SMALL, "--batch-size", "32", "--lr", "0.01", "--warmup-steps", "5")

    language.main([*args, "--steps", "60", "--save", str(tmp_path / "gpt.pt")])

    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("language: 2 layers of 16, ")
    losses = [float(line.split()[3]) for line in rest]
    assert len(losses) == 3
    assert math.log(256) > losses[0] > losses[2]
    assert losses[2] < 3.2
    GPT(options(*SMALL)).load_state_dict(torch.load(tmp_path / "gpt.pt"))


def test_bfloat16_gives_about_the_same_loss(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(language, "GENERATED_WORDS", 2000)
    losses = []
    for flag in ("--bf16", "--no-bf16"):
        language.main([*SMALL, flag, "--steps", "20"])
        losses.append(float(capsys.readouterr().out.splitlines()[-1].split()[3]))

    assert losses[0] == pytest.approx(losses[1], rel=0.01)
