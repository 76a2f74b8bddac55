"""What a run's row says of its process, and what it must never say."""

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seismograd.masking import LONGEST, MASK, is_secret, masked, shown, without_secrets
from seismograd.store.about import about

SECRET_NAMES = """
    api-key api_key apikey apiKey API_KEY openai-api-key token hf-token hf_token hfToken auth-token access-token
    password db-password dbPassword passwd pwd pw passphrase secret client-secret aws-secret-access-key secret-key
    private-key credentials wandb-key wandb.api_key trainer.logger.token secrets.db ssh-key bearer auth jwt
    password2 api-key-value user-pass token-value proxy_password
"""
OTHER_NAMES = """
    lr tokenizer tokenizer-name key-frames keyframes max-tokens num_tokens tokens token-file token-dim pad-token
    eos_token_id sort-key label_key monkey turkey passes num-pass bypass author authors use-auth-token no-token
    secret-santa-epochs password-file keyboard keys compass pattern cookies-dropout secretary per-token batch-size
"""

values = st.text(min_size=1, max_size=60).filter(
    lambda text: not text.startswith("-") and text[0] + text[-1] not in ("<>", "[]")
)
settings_ = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.from_regex(r"[a-z]{1,12}([-_/][a-z0-9]{1,8}){0,3}", fullmatch=True)
).map(str)


@given(st.sampled_from(SECRET_NAMES.split()), values, st.sampled_from(["--", "-", "++", "+", ""]))
def test_what_is_named_a_secret_is_never_told(name, value, dashes):
    assert masked([f"{dashes}{name}={value}", "train"]) == [f"{dashes}{name}={MASK}", "train"]
    if dashes.startswith("-"):
        shown_as = masked([f"{dashes}{name}", value, "--lr", "0.1"])
        assert shown_as == [f"{dashes}{name}", MASK, "--lr", "0.1"]


@given(st.sampled_from(OTHER_NAMES.split()), settings_)
@example("pad-token", "<pad>")
@example("eos_token", "<|endoftext|>")
def test_other_options_are_told_as_they_are(name, value):
    assert not is_secret(name)
    assert masked([f"--{name}", value]) == [f"--{name}", value]
    assert masked([f"--{name}={value}"]) == [f"--{name}={value}"]


@given(
    st.from_regex(r"(https?|postgresql(\+psycopg)?|redis|s3|amqp|git\+https)", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9_.-]{0,8}", fullmatch=True),
    st.text(min_size=1, max_size=30),
    st.from_regex(r"[a-z]{1,8}(\.[a-z]{2,3})?(:[0-9]{1,4})?(/[a-z0-9]{0,8}){0,2}", fullmatch=True),
)
def test_the_password_in_an_address_is_never_told(scheme, user, password, host):
    login = f"{scheme}://{user}:{quote(password, safe='')}@{host}"
    assert masked(["--db", login, f"--to={login}"]) == [
        "--db",
        f"{scheme}://{user}:{MASK}@{host}",
        f"--to={scheme}://{user}:{MASK}@{host}",
    ]


@given(st.text(alphabet="abcXYZ012!$%&'()*+,;=:@[]^`{|}~\"", min_size=3, max_size=20))
def test_nor_is_one_that_nobody_escaped(password):
    text = masked([f"postgresql://me:{password}@host/db"])[0]
    assert text == f"postgresql://me:{MASK}@host/db"


@pytest.mark.parametrize(
    "value",
    [
        "sk-abcdefghijklmnopqrstuvwx",
        "sk-ant-api03-abcdefghijkl-mnopqrst_uv",
        "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
        "ghp_0123456789abcdefghijABCDEFGHIJ012345",
        "github_pat_11ABCDEFG0123456789_abcdefghijklmnop",
        "glpat-abcdefghij0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "AIzaSyA-1234567890abcdefghijklmnopqrstu",
        "xoxb-123456789012-abcdefghijkl",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        "Zq3xT9vKp2LmN8wRb5YcJd7HsGf4AeUo",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA",
    ],
)
def test_what_looks_like_a_key_is_never_told_wherever_it_stands(value):
    for argument in (value, f"--note=run with {value}", f"x={value}", f'{{"a": "{value}"}}'):
        assert value not in shown([argument, "--lr", "0.1"])
        assert MASK in shown([argument])


@pytest.mark.parametrize(
    "argument",
    [
        "0123456789abcdef0123456789abcdef01234567",  # a commit
        "123e4567-e89b-12d3-a456-426614174000",
        "lr1e-3_bs32_wd1e-4_L12_H8_d768_seed1_warmup500",
        "meta-llama/Llama-3.1-8B-Instruct",
        "TransformerEncoderLayerWithRotaryEmbeddings2D",
        "data/Train2/Outputs/Experiment/CheckPoint1",
        "https://github.com/pytorch/pytorch@main",
        "http://localhost:8080/models@v1",
        "git@github.com:org/repo.git",
        "pytorch/pytorch:2.1@sha256:0123abcd",
        "model.optimizer.lr=0.1",
        "{'lr': 0.1, 'sort_key': 'name'}",
        "2026-11-16T17:25:08",
        "C:\\data\\train",
    ],
)
def test_long_names_commits_and_addresses_stay(argument):
    assert masked([argument]) == [argument]


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ('{"api_key": "abc", "lr": 0.1}', '{"api_key": "***", "lr": 0.1}'),
        ("Authorization: Bearer abcdefgh", "Authorization: *** ***"),
        ("https://x.org/a?token=abc&size=3", "https://x.org/a?token=***&size=3"),
        ("https://b.s3.aws.com/x?X-Amz-Signature=abc&b=2", "https://b.s3.aws.com/x?X-Amz-Signature=***&b=2"),
        ("https://abc@github.com/org/repo", "https://***@github.com/org/repo"),
        ("git+https://abc@gitlab.com/org/repo", "git+https://***@gitlab.com/org/repo"),
        ("ssh://git@github.com/org/repo", "ssh://git@github.com/org/repo"),
        ("me:hunter2@host:5432", "me:***@host:5432"),
        ("postgresql://me:a/b@host/db", "postgresql://me:***@host/db"),
        ("https://hooks.slack.com/services/T0/B0/xyz", "https://hooks.slack.com/***"),
        ("https://discord.com/api/webhooks/1/abc", "https://discord.com/***"),
        ("--notify=https://me:pw@ntfy.example/topic", "--notify=https://ntfy.example/***"),
    ],
)
def test_of_what_holds_a_secret_the_rest_is_told(argument, told):
    assert without_secrets(argument) == told


def test_an_option_with_several_secrets_hides_them_all():
    assert masked(["--api-keys", "a", "b", "--gpus", "2"]) == ["--api-keys", MASK, MASK, "--gpus", "2"]
    assert masked(["--notify", "https://a.example/b?c", "x"]) == ["--notify", "https://a.example/***", "x"]


def test_what_is_a_commit_elsewhere_is_a_key_of_wandb():
    key = "0123456789abcdef0123456789abcdef01234567"
    assert masked(["--wandb", key, f"--wandb-login={key}"]) == ["--wandb", MASK, f"--wandb-login={MASK}"]
    assert masked(["--revision", key, f"--commit={key}"]) == ["--revision", key, f"--commit={key}"]


@given(st.lists(st.text(max_size=80), max_size=6))
def test_masking_never_fails_and_twice_is_once(arguments):
    once = masked(arguments)
    assert len(once) == len(arguments)
    assert masked(once) == once


@pytest.mark.parametrize("piece", ["a", "://", "@", "a:", "A1b", "a=", "://a:", '"'])
def test_a_huge_argument_is_told_by_its_length(piece):
    huge = piece * 200_000
    assert masked([huge, "x"]) == [f"<{len(huge)} characters>", "x"]
    assert len(masked([piece * (LONGEST // len(piece))])) == 1


def test_about_is_plain_and_names_what_a_reader_asks_for():
    facts = about()
    assert {"command", "script", "cwd", "python", "seismograd", "host", "pid", "platform", "cpus", "world_size"} <= set(
        facts
    )
    assert facts["pid"] == os.getpid()
    assert facts["cwd"] == os.getcwd()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts


PROGRAM = """
import json, sys
{imports}
from seismograd.store.about import about
facts = about()
facts["imported"] = "torch" in sys.modules
print(json.dumps(facts))
"""


@pytest.mark.parametrize("imports", ["", "import torch"])
def test_a_program_tells_its_command_but_neither_secrets_nor_environment(tmp_path, imports):
    script = tmp_path / "train.py"
    script.write_text(PROGRAM.format(imports=imports))
    environment = {**os.environ, "MY_SETTING": "from-the-environment", "WORLD_SIZE": "4"}
    command = [sys.executable, str(script), "--lr", "0.1", "--api-key", "from-the-command"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=100, check=True
    )
    assert "from-the" not in done.stdout
    facts = json.loads(done.stdout)
    assert facts["command"].endswith("train.py --lr 0.1 --api-key ***")
    assert Path(facts["script"]) == script
    assert facts["world_size"] == 4
    assert facts["imported"] is bool(imports)
    assert ("torch" in facts) is bool(imports)


@pytest.mark.parametrize("options", [["-c"], ["-X", "utf8", "-W", "ignore", "-c"], ["-uc"]])
def test_a_program_given_with_c_is_not_told(tmp_path, options):
    program = PROGRAM.format(imports="x = 'do-not-tell'")
    done = subprocess.run(
        [sys.executable, *options, program], capture_output=True, text=True, cwd=tmp_path, timeout=100, check=True
    )
    facts = json.loads(done.stdout)
    assert "do-not-tell" not in done.stdout
    assert facts["command"].endswith(f"{options[-1]} ...")
    assert facts["script"] is None


@pytest.mark.parametrize("unit", ["a", "af01", "a.b-", "https://a/b,", '{"lr":0.1,"x":"/y"},', "-----BEGIN", "a "])
def test_a_long_text_comes_through_whole_and_its_secret_does_not(unit: str) -> None:
    """A long word would take minutes if a name were looked for at each of its letters."""
    text = unit * (100_000 // len(unit))
    told = without_secrets(f"{text} --api-key=hunter2 {text}")
    assert told == f"{text} --api-key={MASK} {text}"


@pytest.mark.parametrize("before", ["", "--", "1", "é", "x.", "{'a': 1, ", "?a=b&", "-"])
def test_a_name_is_found_wherever_it_begins(before: str) -> None:
    assert without_secrets(f"see {before}password=hunter2, then") == f"see {before}password={MASK}, then"
    assert without_secrets(f"see {before}'password': 'hunter2'") == f"see {before}'password': '{MASK}'"
