"""Command lines and addresses without their secrets. Standard library only.

An option's value is secret when its name ends in the word for one (`--api-key`, `db.password=`), whatever it is: the
last word of a name says what the value *is*, those before it of what kind. So `--key-frames 3` are frames, `--token-
file` is a file, and a `--tokenizer` is no token. `key` and `token` are ordinary words too: with them the word before
decides.
A value is secret without such a name when it has the shape of one: what GitHub, Hugging Face, OpenAI, AWS and others
hand out, a login in an address, or a long word whose characters change their kind as often as chance would have it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from itertools import pairwise

MASK = "***"
LONGEST = 2000
"""A longer argument is none that a person would read: only its length is told."""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SECRETS = _set("""
    password passwords passwd pwd pw passphrase passcode secret secrets credential credentials creds cred apikey apikeys
    apitoken authtoken accesstoken accesskey secretkey privatekey auth authorization bearer jwt cookie otp pat
""")
_ENDINGS = ("password", "passwd", "passphrase", "secret", "apikey", "apitoken", "authtoken", "accesstoken", "accesskey")
_OWNERS = _set("""
    api access secret private auth oauth bearer refresh session user account admin client service app bot master root
    encryption decryption signing hmac ssh gpg pgp tls ssl license licence subscription shared storage deploy personal
    security id db database postgres mysql redis smtp mail ftp http proxy vault registry docker git github gitlab aws
    azure gcp google gemini openai anthropic claude cohere mistral together groq replicate hf huggingface hub kaggle
    wandb neptune comet clearml mlflow aim dagshub slack discord telegram sentry datadog ngrok pypi npm
""")
"""Words before `key`, `keys`, `pass` and `tokens` with which they are a secret."""
_OF_TEXT = _set("""
    pad padding eos bos unk unknown mask masked sep cls special stop start end begin first last next image video audio
    prompt prefix suffix think blank space newline separator class null input output target source text chat per num
    max min n new added extra
""")
"""Words before `token` with which it is one of a tokenizer's."""
_FLAGS = _set("use no with without has is enable disable skip require requires need needs allow show")
_HEX = re.compile(r"[0-9a-f]{40}")
"""A commit, but for W&B a key."""
_FILLERS = _set("value string str text plain b64 base64 raw")
_PLACES = _set("notify webhook webhooks hook hooks")

_SHAPES = re.compile(
    r"""
      \bsk-[A-Za-z0-9_-]{16,} | \bsk_(?:live|test)_\w{10,}                     # OpenAI, Anthropic, Stripe
    | \bhf_[A-Za-z0-9]{16,} | \bapi_org_[A-Za-z0-9]{16,}                       # Hugging Face
    | \bgh[opsur]_[A-Za-z0-9]{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,} # GitHub, GitLab
    | \b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b                                  # AWS
    | \bAIza[\w-]{30,} | \bya29\.[\w-]{20,} | \bGOCSPX-[\w-]{20,}              # Google
    | \bxox[a-z]-[\w-]{10,} | \bxapp-[\w-]{10,}                                # Slack
    | \bwandb_v\d_\w{16,} | \br8_[A-Za-z0-9]{20,} | \bgsk_[A-Za-z0-9]{20,}     # W&B, Replicate, Groq
    | \bnpm_[A-Za-z0-9]{30,} | \bpypi-[\w-]{30,} | \bdop_v1_\w{30,} | \bSG\.[\w-]{16,}\.[\w-]{16,}
    | \beyJ[\w-]{8,4000}\.[\w-]{8,}(?:\.[\w-]*)?                                   # a JSON web token
    | -----BEGIN[A-Z ]*PRIVATE\ KEY-----.*
    """,
    re.VERBOSE | re.DOTALL,
)
_LONG = re.compile(r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9]{32,}|[A-Za-z0-9+/]{40})(?![A-Za-z0-9+/])")
_BEARER = re.compile(r"\b(bearer|basic)\s+(?!auth)\S{6,}", re.IGNORECASE)
_HOOKS = re.compile(
    r"(?i)(\bhttps?://[^/\s]*(?:\bhooks?\.|webhook)[^/\s]*|\bhttps?://[^/\s]+(?=/\S{,500}?(?:webhook|/bot\d)))/\S*"
)
_LOGIN = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]*://)([^/?#\s@]*(?:@[^/?#\s@]*)*)@")
_SLASHED = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]*://[^:/?#\s@]*):(?!\d+(?:[/?#]|$))[^\s@]{,500}@")
_BARE_LOGIN = re.compile(r"^([^\s:@/=]+):[^\s@/]+@(?!sha\d+:)(?=[\w.-]+)")
_PAIR = re.compile(  # a name is looked for where a word begins: at each letter of a long word it would take minutes
    r"""(?<![\w.-])(?P<before>(?:(?![A-Za-z_])[\w.-])*+)(?P<name>[A-Za-z_][\w.-]*+["']?)(?P<is>\s*+(?:=>|[:=])\s*)(?!//)"""
    r"""(?P<value>"[^"]*"|'[^']*'|[^\s,;&"'}\])]+)"""
)
_OPTION = re.compile(r"(--?|\+{1,2})?([A-Za-z_][\w.:/-]*?)=(.*)", re.DOTALL)
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_OF_A_TOKENIZER = re.compile(r"<.*>|\[.*\]", re.DOTALL)


def masked(arguments: Iterable[str]) -> list[str]:
    """The arguments of a command, with `***` where one looks like a key, a token, a password or a login."""
    result: list[str] = []
    secret = many = False
    """Whether the argument before was an option whose value is a secret, and whether it takes several."""
    for given in arguments:
        argument = given if len(given) <= LONGEST else f"<{len(given)} characters>"
        is_option = re.match(r"--?[A-Za-z]", argument) is not None
        if secret and not is_option and argument != "--":
            result.append(argument if _OF_A_TOKENIZER.fullmatch(argument) else MASK)
            secret = many
            continue
        name = argument.lstrip("-") if is_option and "=" not in argument else ""
        secret = is_secret(name)
        many = secret and name.lower().endswith("s") and not name.lower().endswith(("pass", "address"))
        if result and _is_key_of_wandb(result[-1], argument):
            result.append(MASK)
            continue
        place = bool(result) and bool(_PLACES.intersection(_words(result[-1]))) and result[-1].startswith("-")
        result.append(host_only(argument) if place and not is_option else without_secrets(argument))
    return result


def shown(arguments: Iterable[str]) -> str:
    """The command as one would type it, without its secrets."""
    return " ".join(
        argument if re.fullmatch(r"[\w@%+=:,./*-]+", argument) else shlex.quote(argument)
        for argument in masked(arguments)
    )


def without_secrets(text: str) -> str:
    """The text with `***` for what has a secret's name or shape: logins in addresses, keys, `password=...`."""
    option = _OPTION.fullmatch(text)
    if option is not None and "://" not in option[2]:
        before, name, value = option[1] or "", option[2], option[3]
        if (is_secret(name) and value and not _OF_A_TOKENIZER.fullmatch(value)) or _is_key_of_wandb(name, value):
            return f"{before}{name}={MASK}"
        if _PLACES.intersection(_words(name)):
            return f"{before}{name}={host_only(value)}"
        return f"{before}{name}={_cleared(value)}"
    return _cleared(text)


def _cleared(text: str) -> str:
    text = _HOOKS.sub(rf"\1/{MASK}", text)
    text = _LOGIN.sub(_login, text)
    text = _SLASHED.sub(rf"\1:{MASK}@", text)
    text = _BARE_LOGIN.sub(rf"\1:{MASK}@", text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _SHAPES.sub(MASK, text)
    text = _PAIR.sub(_pair, text)
    return _LONG.sub(lambda found: MASK if _is_random(found[0]) else found[0], text)


def is_secret(name: str) -> bool:
    """Whether an option of this name has a secret for its value."""
    parts = [part for part in re.split(r"[.:/]", name) if part]
    return any(_names_a_secret(_words(part), alone=at == len(parts) - 1) for at, part in enumerate(parts))


def _names_a_secret(words: list[str], *, alone: bool) -> bool:
    while len(words) > 1 and (words[-1] in _FILLERS or words[-1].isdigit()):
        words.pop()
    if not words or (len(words) > 1 and words[0] in _FLAGS):
        return False
    last, kind = words[-1], words[-2] if len(words) > 1 else None
    if last in _SECRETS or last.endswith(_ENDINGS):
        return True
    if last in ("key", "pass"):
        return alone if kind is None else kind in _OWNERS
    if last == "token":
        return alone if kind is None else kind not in _OF_TEXT
    if last in ("keys", "tokens"):
        return kind in _OWNERS
    return any(last.endswith(word) and last.removesuffix(word) in _OWNERS for word in ("key", "token", "pass"))


def _is_key_of_wandb(name: str, value: str) -> bool:
    return "wandb" in _words(name) and _HEX.fullmatch(value) is not None


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name)]


def _login(found: re.Match[str]) -> str:
    scheme, login = found[1], found[2]
    user, colon, _ = login.partition(":")
    if colon:
        return f"{scheme}{user}:{MASK}@"
    return f"{scheme}{MASK}@" if scheme.lower().endswith(("http://", "https://")) else found[0]  # a token alone


def _pair(found: re.Match[str]) -> str:
    name, value = found["name"].strip("\"'"), found["value"]
    if not (is_secret(name) or _is_signature(name)):
        return found[0]
    quote = value[0] if value[0] in "\"'" else ""
    if _OF_A_TOKENIZER.fullmatch(value.strip("\"'")) or value.strip("\"'") == MASK:
        return found[0]
    return f"{found['before']}{found['name']}{found['is']}{quote}{MASK}{quote}"


def _is_signature(name: str) -> bool:
    """The parts of a signed address that open it."""
    return name.lower() in ("sig", "signature") or name.lower().endswith(
        ("-signature", "-credential", "-security-token")
    )


def host_only(address: str) -> str:
    """Of an address that is its own password, only the host."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*://)?(?:\S*@)?([^/?#@\s]*)(.?)", address)
    return f"{found[1] or ''}{found[2]}{found[3] and '/' + MASK}" if found else MASK


def _is_random(word: str) -> bool:
    kinds = ["d" if c.isdigit() else "U" if c.isupper() else "l" if c.isalpha() else "s" for c in word]
    changes = sum(a != b for a, b in pairwise(kinds))
    return {"d", "U", "l"} <= set(kinds) and changes >= 0.4 * len(word)
