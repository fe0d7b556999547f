"""Secrets, known by their values or by their look, never reach a node."""

from __future__ import annotations

import base64
import html
import json
import random
import re
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from cli_samples import PAIR, scripted, write
from conftest import Uwf
from hypothesis import given, settings
from hypothesis import strategies as st

from uwf_git.base.errors import Invalid
from uwf_git.config.secrets import Redactor, load_secrets, removal_note
from uwf_git.config.settings import Provider
from uwf_git.config.tokens import SHAPES
from uwf_git.engine.kit.context import Reply
from uwf_git.engine.kit.extract import ExpectedOutput, extract
from uwf_git.format.builtin import BUILTIN, META
from uwf_git.format.kinds import Role
from uwf_git.format.node import hash_of
from uwf_git.format.schema import Schema

KEY = 'sk-Live/4f9a+Zq7"x'


def config(*variables: str, secrets: tuple[str, ...] = (), not_secrets: tuple[str, ...] = ()) -> Any:
    providers = {name: Provider(name, "", name) for name in variables}
    return SimpleNamespace(
        providers=providers, secrets=secrets, not_secrets=not_secrets, models={}, secret_sources={}
    )


def test_secrets_come_from_dotenv_and_from_the_configured_variables(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        'A_KEY=from-dotenv\nexport B_KEY="with $dollar and # sign"\nEMPTY=\n# C=no\n'
    )
    environ = {"C_KEY": "from-environment", "DEPLOY": "named-in-secrets", "OTHER": "never-looked-at"}
    assert load_secrets(tmp_path, config("C_KEY", "D_KEY", "", secrets=("DEPLOY", "ABSENT")), environ) == {
        "A_KEY": "from-dotenv",
        "B_KEY": "with $dollar and # sign",
        "C_KEY": "from-environment",
        "DEPLOY": "named-in-secrets",
    }


def test_the_real_environment_wins_and_both_values_are_hidden(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A_KEY=value-of-the-file\n")
    secrets = load_secrets(tmp_path, None, {"A_KEY": "value-of-the-shell"})
    assert secrets == {"A_KEY": "value-of-the-shell"}
    text = "value-of-the-file, value-of-the-shell"
    assert Redactor(secrets).text(text) == ("[redacted:A_KEY], [redacted:A_KEY]", 2)


def test_without_a_dotenv_there_is_nothing_to_hide(tmp_path: Path) -> None:
    redactor = Redactor(load_secrets(tmp_path, None, {}))
    assert not redactor
    value = {"a": [KEY]}
    assert redactor.value(value) == (value, 0)
    assert redactor.text(KEY) == (KEY, 0)


def test_a_dotenv_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"A=\xff\xfe")
    with pytest.raises(Invalid, match=r"\.env cannot be read: not UTF-8"):
        load_secrets(tmp_path, None, {})
    (tmp_path / ".env").unlink()
    (tmp_path / ".env").mkdir()
    with pytest.raises(Invalid, match=r"\.env cannot be read: Is a directory"):
        load_secrets(tmp_path, None, {})


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        json.dumps({"key": KEY}),
        json.dumps("Schlüssel " + KEY),
        f"https://x.example/?key={quote(KEY, safe='')}&a=b",
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(KEY.encode()).decode(),
        "Authorization: Basic " + base64.b64encode(f"user:{KEY}".encode()).decode(),
        "Authorization: Basic " + base64.b64encode(f"me:{KEY}\n".encode()).decode(),
        "Authorization: Basic " + base64.b64encode(f"a:{KEY}:z".encode()).decode(),
    ],
)
def test_a_secret_is_found_in_every_form(form: str) -> None:
    clean, count = Redactor({"API_KEY": KEY}).text(f"<{form}>")
    assert count == 1
    assert "[redacted:API_KEY]" in clean
    for part in (KEY, KEY[4:14]):
        assert part not in clean


ODD = "p<a/ß&w \"0r'd+=😀x"
"""A secret of characters that programs quote in many ways."""


def by_character(quoted: Callable[[str], str], which: Callable[[str], bool] = lambda char: True) -> str:
    return "".join(quoted(char) if which(char) else char for char in ODD)


def utf16(char: str, escape: str) -> str:
    halves = char.encode("utf-16-be").hex()
    return "".join(escape + halves[at : at + 4] for at in range(0, len(halves), 4))


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(quote(ODD, safe="").lower(), id="URL, lower-case hex"),
        pytest.param(quote(ODD, safe="/+=").lower(), id="URL, some characters as they are"),
        pytest.param(quote(ODD, safe="").replace("%3C", "%3c"), id="URL, mixed case"),
        pytest.param(quote_plus(ODD).lower(), id="form, lower-case hex"),
        pytest.param("".join(f"%{byte:02x}" for byte in ODD.encode()), id="URL, all characters"),
        pytest.param(html.escape(ODD), id="HTML"),
        pytest.param(html.escape(ODD, quote=False).replace("'", "&apos;"), id="XML"),
        pytest.param(by_character(lambda char: f"&#{ord(char)};"), id="HTML, decimal"),
        pytest.param(by_character(lambda char: f"&#x{ord(char):X};"), id="HTML, hex"),
        pytest.param(by_character(lambda char: utf16(char, "\\u")), id="JSON, all characters"),
        pytest.param(
            by_character(lambda char: utf16(char, "\\\\u").upper().replace("U", "u")), id="JSON twice"
        ),
        pytest.param(by_character(lambda char: utf16(char, "\\u"), "<>&'".__contains__), id="JSON for HTML"),
        pytest.param(
            by_character(lambda char: f"\\x{ord(char):02x}", "<&\"'".__contains__), id="source code"
        ),
        pytest.param(ODD.encode().hex(), id="hex"),
        pytest.param(ODD.encode().hex().upper(), id="upper-case hex"),
    ],
)
def test_a_secret_is_found_however_its_characters_are_quoted(form: str) -> None:
    assert Redactor({"S": ODD}).text(f"é <{form}>%20&amp;\\u0041") == ("é <[redacted:S]>%20&amp;\\u0041", 1)


def test_a_secret_that_looks_quoted_is_found_quoted_again() -> None:
    for secret in ("a%41b&amp;c%20dd", "back\\u0041slash-x1"):
        for form in (quote(secret, safe=""), quote(secret, safe="").lower(), html.escape(secret)):
            assert Redactor({"S": secret}).text(form) == ("[redacted:S]", 1)


def test_values_are_cleaned_in_keys_lists_and_below() -> None:
    value = {"a": [f"x{KEY}y", 3, None, {KEY: True}], "b": "clean"}
    assert Redactor({"K": KEY}).value(value) == (
        {"a": ["x[redacted:K]y", 3, None, {"[redacted:K]": True}], "b": "clean"},
        2,
    )


def test_of_two_secrets_that_begin_alike_the_longer_goes_whole() -> None:
    redactor = Redactor({"SHORT": "abcdefgh-1", "LONG": "abcdefgh-1-and-more"})
    assert redactor.text("abcdefgh-1-and-more abcdefgh-1!") == ("[redacted:LONG] [redacted:SHORT]!", 2)


def test_lines_of_a_key_are_found_where_json_escapes_them() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQ8s\n-----END KEY-----"
    clean, count = Redactor({"PEM": key}).text(json.dumps({"file": key}))
    assert (clean, count) == ('{"file": "[redacted:PEM]"}', 1)


SEVERAL = "first line of 3\nsecond Line, 7\nthe third"
WORD = "tok_Zx81kQ93mfLw72hYtB50"


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        (SEVERAL, SEVERAL.replace("\n", "\r\n")),
        (SEVERAL, "key: |\n    " + SEVERAL.replace("\n", "\n    ")),
        (SEVERAL, SEVERAL.replace("\n", "\n\n  ")),
        (SEVERAL, json.dumps(json.dumps({"a": SEVERAL}))),
        (SEVERAL * 3, base64.encodebytes(SEVERAL.encode() * 3).decode()),
        (WORD, WORD[:9] + "\n" + WORD[9:]),
        (WORD, WORD[:9] + "\\\n        " + WORD[9:]),
        (WORD, json.dumps(WORD[:9] + "\r\n" + WORD[9:])),
    ],
)
def test_a_secret_is_found_however_its_lines_are_broken(secret: str, text: str) -> None:
    clean, count = Redactor({"KEY": secret}).text(f"<{text}>")
    assert count == 1
    assert not any(part in clean for part in (*secret.split("\n"), secret[:9], secret[9:]))
    spot = Redactor({"KEY": secret}).first(f"a\nb\n{text}".encode())
    assert spot == ("KEY", 4 if text.startswith("key") else 3)


def test_each_line_of_a_key_is_a_secret_and_so_is_the_key_wrapped_anew() -> None:
    key = pem("EC ") + "\n"
    lines = key.splitlines()
    redactor = Redactor({"PEM": key})
    assert redactor.text(f"secret.pem:3:{lines[2]}") == ("secret.pem:3:[redacted:PEM]", 1)
    body = "".join(lines[1:-1])
    wrapped = "\n".join(body[at : at + 50] for at in range(0, len(body), 50))
    assert redactor.text(f"<{wrapped}>") == ("<[redacted:PEM]>", 1)
    assert redactor.text("-----BEGIN EC PRIVATE KEY-----") == ("-----BEGIN EC PRIVATE KEY-----", 0)


def test_what_is_named_like_a_key_in_the_environment_is_one(tmp_path: Path) -> None:
    secret = {
        "DB_PASSWORD": "letmeinplease",
        "API_KEY_2": "abcdefghijkl",
        "npm_config__authToken": "mnopqrstuvwx",
        "MYSQL_PWD": "correct-horse",
        "APP_KEY": "base64:Zx81kQ93mfLw72",
    }
    harmless = {
        "SORT_KEY": "created_at",
        "TOKEN_TYPE": "confidential",
        "SECRET_BACKEND": "kubernetes",
        "GIT_CONFIG_KEY_0": "user.signingkey1",
        "KEYBOARD_LAYOUT": "dvorak-classic",
        "PWD": "/nowhere/at/all",
        "MAX_TOKENS": "1000000",
    }
    secrets = load_secrets(tmp_path, None, secret | harmless)
    assert not secrets  # nobody looks a key up there
    redactor = Redactor(secrets)
    for name, value in secret.items():
        assert redactor.text(f"it is {value}.") == (f"it is [redacted:{name}].", 1)
    for value in harmless.values():
        assert redactor.text(f"it is {value}.") == (f"it is {value}.", 0)
    allowed = load_secrets(tmp_path, config(not_secrets=("DB_PASSWORD",)), secret)
    assert Redactor(allowed).text("letmeinplease abcdefghijkl") == ("letmeinplease [redacted:API_KEY_2]", 1)


def test_a_header_in_json_is_known_by_its_name_and_a_number_is_a_secret_as_a_text_is() -> None:
    value = {
        "headers": {"Authorization": "Basic dXNlcjpwYXNzMTI=", "Accept": "text/html"},
        "id": 123456789012345,
    }
    assert Redactor({"ID": "123456789012345"}).value(value) == (
        {
            "headers": {"Authorization": "Basic [redacted:authorization]", "Accept": "text/html"},
            "id": "[redacted:ID]",
        },
        2,
    )


def test_what_has_no_secrets_any_more_is_clean_whatever_they_are_called() -> None:
    redactor = Redactor({"MODEL_KEY": "MODEL_KEY", "OTHER": "redacted", "TOKEN": "s3cr3t-and-long"})
    clean, count = redactor.text("s3cr3t-and-long MODEL_KEY")
    assert (clean, count) == ("[redacted:TOKEN] MODEL_KEY", 1)
    assert redactor.text(clean) == (clean, 0)


@pytest.mark.parametrize(
    "value",
    [
        "short",
        "production",
        "12345678",
        "1.25.30.4:80",
        "https://api.example.com/v1",
        "/usr/bin",
        "aaaaaaaaaa",
        " " * 9,
    ],
)
def test_settings_beside_the_secrets_are_left_alone(value: str) -> None:
    assert not Redactor({"SETTING": value})


@pytest.mark.parametrize(
    "value",
    [
        "hunter2hunter2",
        "https://me:pass@host/x",
        "https://hooks.example.com/T0/XXabc123456789012345",
        "123456789012345",
    ],
)
def test_whatever_may_be_a_secret_is_one(value: str) -> None:
    assert Redactor({"S": value}).text(f"a {value} b") == ("a [redacted:S] b", 1)


_TOKEN = "Zx81kQ93mfLw72aaB1"


def test_models_addresses_and_hosts_beside_the_keys_are_not_secret(tmp_path: Path) -> None:
    settings = {
        "ANTHROPIC_MODEL": "claude-sonnet-4-5",
        "VERTEX_MODEL_2": "claude-sonnet-4-5@20250929",
        "OPENAI_BASE_URL": "https://gateway.example/compatible-mode-of-old/v1",
        "OLLAMA_HOST": "models.internal:11434",
        "AWS_REGION": "eu-central-1",
        "FAVOURITE": "gateway/the-model",
    }
    private = {
        "A_BASE_URL": "https://me:letmein@gateway.example/v1",
        "B_BASE_URL": f"https://gateway.example/{_TOKEN}/v1",
        "C_BASE_URL": "https://gateway.example/3f2b8c1e-9d47-4a6b-8e21-5c0f7a9b1d34",
        "DB_HOST": "me:letmein@db.internal",
        "E_MODEL": _TOKEN,
        "F_HOST": "correct horse battery",
        "LISTED_MODEL": "the-secret-model",
        "MODEL_KEY": "claude-or-nobody",
    }
    lines = [f'{name}="{value}"' for name, value in (settings | private).items()]
    (tmp_path / ".env").write_text("\n".join(lines))
    configured = config(secrets=("LISTED_MODEL",))
    configured.models = {"m": SimpleNamespace(name="gateway/the-model")}
    secrets = load_secrets(tmp_path, configured, {})
    redactor = Redactor(secrets)
    for value in settings.values():
        assert redactor.text(f"it is {value}.") == (f"it is {value}.", 0)
    for name, value in private.items():
        assert redactor.text(f"it is {value}.") == (f"it is [redacted:{name}].", 1)
    assert secrets.kept_from() == settings


@settings(max_examples=60)
@given(st.text(min_size=12, max_size=30), st.text(max_size=20), st.text(max_size=20))
def test_no_secret_survives(secret: str, before: str, after: str) -> None:
    redactor = Redactor({"S": secret})
    if redactor:
        url = quote(secret, safe="", errors="replace")
        small = re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), url)
        for text in (secret, json.dumps(secret)[1:-1], url, small, html.escape(secret)):
            clean, count = redactor.text(before + text + after)
            assert count >= 1
            assert text not in clean or text in "[redacted:S]"


def letters(count: int, seed: int = 3) -> str:
    return "".join(random.Random(seed).choices("ABCDEFGHIJKLMNPabcdefghijkmnpqrstuvwxyz23456789", k=count))


def pem(kind: str = "RSA ") -> str:
    body = "\n".join(letters(64, seed) for seed in range(8))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{body}\n-----END {kind}PRIVATE KEY-----"


TOKENS = {  # none of them is anybody's; put together here, so that nobody takes them for one
    "github-token": ["gh" + f"{kind}_{letters(36)}" for kind in "pousr"] + ["github_" + f"pat_{letters(82)}"],
    "gitlab-token": ["gl" + f"pat-{letters(20)}", "gl" + f"pat-{letters(27)}.01.{letters(9).lower()}"],
    "aws-access-key": ["AK" + f"IA{letters(40).upper().replace('8', 'X').replace('9', 'Y')[:16]}"],
    "anthropic-key": ["sk-" + f"ant-api03-{letters(40)}-{letters(40)}_AA"],
    "openai-key": [
        "sk-" + f"proj-{letters(74)}",
        "sk-" + letters(48),
        "sk-" + random.Random(1).randbytes(16).hex(),
    ],
    "openrouter-key": ["sk-" + "or-v1-" + random.Random(2).randbytes(32).hex()],
    "google-key": ["AI" + f"za{letters(35)}"],
    "slack-token": ["xo" + f"xb-123456789012-{letters(24)}"],
    "stripe-key": ["sk_" + f"live_{letters(24)}"],
    "npm-token": ["np" + f"m_{letters(36)}"],
    "pypi-token": ["py" + f"pi-AgEIcHlwaS5vcmc{letters(60)}"],
    "huggingface-token": ["h" + f"f_{letters(34)}"],
    "azure-secret": ["abc8" + f"Q~{letters(34)}"],
    "jwt": [f"eyJhbGciOi{letters(20)}.eyJzdWIi{letters(30)}.{letters(43)}"],
    "private-key": [pem(), pem(""), pem("OPENSSH ")],
}


@pytest.mark.parametrize(
    ("kind", "token"), [(kind, token) for kind, each in TOKENS.items() for token in each]
)
def test_a_token_is_known_by_its_look_wherever_it_stands(kind: str, token: str) -> None:
    redactor = Redactor({})
    for before, after in (
        ("", ""),
        ("it is ", "."),
        ("KEY=", "\n"),
        ('{"key": "', '"}'),
        ("\\n", "\\n"),
        ("?key=", "&a=b"),
    ):
        assert redactor.text(before + token + after) == (f"{before}[redacted:{kind}]{after}", 1)
    escaped = json.dumps({"out": f"x\n{token}\n"})
    assert redactor.text(escaped) == (escaped.replace(json.dumps(token)[1:-1], f"[redacted:{kind}]"), 1)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"Authorization: Bearer {letters(30)}", "Authorization: Bearer [redacted:authorization]"),
        (f"-H 'authorization: Basic {letters(20)}=='", "-H 'authorization: Basic [redacted:authorization]'"),
        (f'{{"Authorization": "token {letters(40)}"}}', '{"Authorization": "token [redacted:authorization]"}'),
        (f"x-api-key: {letters(32)}\n", "x-api-key: [redacted:api-key]\n"),
        ("postgres://app:h4rd2gues@db:5432/x", "postgres://app:[redacted:url-password]@db:5432/x"),
        ("redis://:h4rd2gues@cache", "redis://:[redacted:url-password]@cache"),
        (f"https://x:{'gh' + 'p_' + letters(36)}@h/r.git", "https://x:[redacted:github-token]@h/r.git"),
        (f"AWS_SECRET_ACCESS_KEY={letters(40)}", "AWS_SECRET_ACCESS_KEY=[redacted:aws-secret-key]"),
        (f'"aws_secret_access_key": "{letters(40)}"', '"aws_secret_access_key": "[redacted:aws-secret-key]"'),
        (f"AccountKey={letters(86)}==;", "AccountKey=[redacted:azure-key];"),
        (pem()[:300], "[redacted:private-key]"),
        (f"{pem()[:300]}\nand no more.", "[redacted:private-key]\nand no more."),
        (f"-----BEGIN PRIVATE KEY-----\n{letters(900)} is it", "[redacted:private-key] is it"),
        (f"{'np' + 'm_' + letters(36)} {'np' + 'm_' + letters(36, 4)}", "[redacted:npm-token] [redacted:npm-token]"),
    ],
)  # fmt: skip
def test_only_the_secret_goes_and_what_stands_around_it_stays(text: str, clean: str) -> None:
    redacted, count = Redactor({}).text(text)
    assert redacted == clean
    assert count == clean.count("[redacted:")
    assert Redactor({}).text(redacted) == (clean, 0)


def test_what_merely_looks_random_stays() -> None:
    chance = random.Random(5)
    innocent = [
        chance.randbytes(20).hex(),
        chance.randbytes(32).hex(),
        *BUILTIN,
        *(str(uuid.UUID(bytes=chance.randbytes(16))) for _ in range(50)),
        f"sha256-{base64.b64encode(chance.randbytes(32)).decode()}",
        f"data:image/png;base64,{base64.b64encode(chance.randbytes(200_000)).decode()}",
        base64.urlsafe_b64encode(chance.randbytes(200_000)).decode(),
        "git clone https://example.com/team/project.git && ssh://git@example.com:22/x",
        "docker://alpine:3.19.1@sha256:" + chance.randbytes(32).hex(),
        "http://localhost:8080/@scope/name?at=a:b@c",
        "https://user:password@example.com, https://${USER}:${PASSWORD}@example.com",
        "Authorization: Bearer $TOKEN, Authorization: Bearer YOUR_API_KEY, x-api-key: your-key-goes-here",
        "the bearer authentication-scheme-of-the-service; authorization: required",
        'if "-----BEGIN PRIVATE KEY-----" in text and "-----END PRIVATE KEY-----" in text: pass',
        "-----BEGIN CERTIFICATE-----\n" + letters(640) + "\n-----END CERTIFICATE-----",
        "task-list sk-loading-spinner-with-three-bouncing-dots risk-assessment-of-the-second-quarter",
        "npm_config_registry=x npm_package_json hf_model_name AIzawa xoxo-hugs-and-kisses-to-you eyJ.eyJ.eyJ",
        "AKIARA, ASIATIC; secret = os.environ['AWS_SECRET_ACCESS_KEY']",
    ]
    for text in innocent:
        assert Redactor({}).text(text) == (text, 0)


def numbered(lines: list[str], form: str) -> str:
    return "\n".join(form.format(number, line) for number, line in enumerate(lines, 8))


@pytest.mark.parametrize(
    "quoted",
    [
        lambda lines: numbered(lines, "{:>6}→{}"),
        lambda lines: numbered(lines, "{:>4}\t{}"),
        lambda lines: numbered(lines, "-{1}"),
        lambda lines: numbered(lines, "+{1}"),
        lambda lines: numbered(lines, " {1}"),
        lambda lines: numbered(lines, "> {1}"),
        lambda lines: numbered(lines, "    # {1}"),
        lambda lines: numbered(lines, "// {1}"),
        lambda lines: numbered(lines, "{} | {}"),
        lambda lines: numbered(lines, "keys/my_key.pem-{}-{}"),
        lambda lines: numbered(lines, "keys/my_key.pem:{}:{}"),
        lambda lines: numbered(lines, "| {1} |"),
        lambda lines: numbered(lines, '  "{1}\\n" +'),
        lambda lines: numbered(lines, "'{1}\\n'"),
        lambda lines: json.dumps(lines),
        lambda lines: json.dumps(lines, indent=2),
        lambda lines: json.dumps({"out": json.dumps([line + "\n" for line in lines])}),
        lambda lines: json.dumps({"out": numbered(lines, "{:>6}→{}")}),
    ],
)
@pytest.mark.parametrize("kind", ["RSA ", "OPENSSH ", "headed"])
def test_a_key_is_known_whatever_stands_in_front_of_its_lines(
    kind: str, quoted: Callable[[list[str]], str]
) -> None:
    key = pem("RSA " if kind == "headed" else kind).splitlines()
    if kind == "headed":
        key[1:1] = ["Proc-Type: 4,ENCRYPTED", f"DEK-Info: AES-256-CBC,{'0A' * 16}", ""]
    last = "Zb3" + letters(18, 11) + "=="
    text = quoted([*key[:-1], last, key[-1]])
    before, after = "All of it is honest.\n" * 3, "\n12 lines, and that is it: " + "Honest_words " * 9
    clean, count = Redactor({}).text(before + text + after)
    assert count == 1
    assert clean.startswith(before) and clean.endswith(after)
    for secret in (*(letters(64, seed) for seed in range(8)), last):
        assert secret[:20] not in clean and secret[-20:] not in clean
    assert Redactor({}).text(clean) == (clean, 0)
    # Cut off, what is there goes.
    clean, count = Redactor({}).text(text[: text.index(letters(64, 6)[:30])] + "\n" + after)
    assert count == 1 and clean.endswith(after)
    assert not any(letters(64, seed)[:20] in clean for seed in range(6))


def test_what_stands_between_the_lines_of_a_key_stays() -> None:
    old, new = ([letters(64, seed) for seed in seeds] for seeds in (range(3), range(3, 6)))
    text = "\n".join(
        (
            " -----BEGIN PRIVATE KEY-----",
            *(f"-{line}" for line in (*old, "Zm9vYmFy")),
            '+# the "new_one"',
            *(f"+{line}" for line in (*new, "YmFyZm9v")),
            " -----END PRIVATE KEY-----",
        )
    )
    hidden = [*["-[redacted:private-key]"] * 4, '+# the "new_one"', *["+[redacted:private-key]"] * 4]
    wanted = "\n".join((" -----BEGIN PRIVATE KEY-----", *hidden, " -----END PRIVATE KEY-----"))
    assert Redactor({}).text(text) == (wanted, 1)
    honest = (
        "Look for `-----BEGIN PRIVATE KEY-----`, in src/main/java/com/example/project/keys/KeyReader,\n"
        f"at {random.Random(1).randbytes(20).hex()}, and for its end, `-----END PRIVATE KEY-----`; what\n"
        "_stands_ between them_ is the key."
    )
    assert Redactor({}).text(honest) == (honest, 0)


def test_a_key_in_a_list_of_its_lines_is_known() -> None:
    lines = [f"{line}\n" for line in pem().splitlines()]
    hidden = [lines[0], *["[redacted:private-key]\n"] * 8, lines[-1]]
    redactor = Redactor({})
    assert redactor.value({"a": [["x"], lines]}) == ({"a": [["x"], hidden]}, 1)
    spot = redactor.first({"a": [["x"], lines]})
    assert spot is not None and spot.name == "private-key"
    assert redactor.first({"a": [["x"], hidden]}) is None


@pytest.mark.timeout(60)  # seconds suffice; an expression that gets lost takes hours
def test_no_text_can_be_made_to_take_long() -> None:
    """Each shape's own beginnings, repeated, are what an expression could get lost in."""
    redactor = Redactor({})
    for mark in {mark for shape in SHAPES for mark in shape.marks}:
        for filling in ("", "a." * 6, " " * 6 + "=", "A1" * 20):
            redactor.text((mark + filling) * (25_000 // len(mark + filling)))
    line, key = letters(64), "-----BEGIN PRIVATE KEY-----"
    for filling in (f"\n12→{line}", f"\n{line}=", "".join(f"{n:_<250}{line}" for n in range(100)), "_" * 200):
        redactor.text((key + filling) * (500_000 // len(key + filling)))
        redactor.text(key + filling * (500_000 // len(filling)))
    redactor.text("".join(mark + "a" * 5_000 for shape in SHAPES for mark in shape.marks))


def test_it_is_told_how_many_secrets_were_where_and_never_which() -> None:
    assert removal_note([("answer", 1), ("turn 4", 2)]) == ("3 secrets were taken out: answer, turn 4 (2)")
    assert removal_note([("output", 1)]) == "1 secret was taken out: output"
    assert removal_note([("", 4)]) == "4 secrets were taken out"  # as older details have it
    assert (removal_note([]), removal_note([("answer", 0)])) == ("", "")


# In a store

KEYED = """\
- role: writer
  answer: |
    ---
    text: it is {token}
    ---
    I used {token} and then {token}.
- role: critic
  garbage: "{token} was refused"
- role: critic
  output: {{ status: needs_input, question: "Is {token} yours?" }}
"""


@pytest.mark.parametrize(
    ("name", "token"), [("github-token", TOKENS["github-token"][0]), ("MODEL_KEY", "s3cr3t-and-long-enough")]
)
def test_no_object_of_a_store_holds_a_secret_that_was_said(
    uwf: Uwf, root: Path, name: str, token: str
) -> None:
    workflow = write("pair.yaml", PAIR)
    write(str(root / ".env"), "MODEL_KEY=s3cr3t-and-long-enough\n")
    started = uwf("thread", "start", workflow, "-p", f"Use {token}.")
    assert "1 secret" in started.err
    thread = started.json["thread"]
    agent = scripted(KEYED.format(token=token))
    first = uwf("thread", "step", thread, "--agent", agent)
    assert first.err == "uwf: 7 secrets were taken out: output, turn 1 (3), answer (3)\n"
    assert uwf("thread", "step", thread, "--agent", agent, check=6).error["code"] == "agent_failed"
    uwf("thread", "step", thread, "--agent", agent)
    uwf("thread", "answer", thread, "-m", f"No, {TOKENS['npm-token'][0]} is.")
    command = ["git", "--git-dir", str(root / "store.git"), "cat-file", "--batch", "--batch-all-objects"]
    objects = subprocess.run(command, capture_output=True, check=True).stdout
    assert f"[redacted:{name}]".encode() in objects and b"[redacted:npm-token]" in objects
    shown = uwf("thread", "read", thread).out
    assert token not in shown and f"[redacted:{name}]" in shown
    assert token.encode() not in objects and TOKENS["npm-token"][0].encode() not in objects
    uwf("verify", thread)


def test_an_output_that_needs_its_secret_to_be_valid_is_corrected() -> None:
    token = TOKENS["github-token"][0]
    wide = {"type": "object", "properties": {"id": {"type": "string", "pattern": "^gh"}}, "required": ["id"]}
    removal_note: list[str] = []

    def again(_session: str, message: str) -> Reply:
        removal_note.append(message)
        return Reply("---\nid: ghost\n---\n", "s")

    role = Role("r", "R", hash_of(META, wide))

    def clean(value: Any) -> Any:
        return Redactor({}).value(value)[0]

    reply = Reply(f"---\nid: {token}\n---\n", "s")
    found = extract(reply, ExpectedOutput(role, Schema(wide), clean=clean), continue_=again)
    assert (found.output, found.how) == ({"id": "ghost"}, "correction")
    assert "a secret" in removal_note[0] and token not in removal_note[0]
    assert extract(reply, ExpectedOutput(role, Schema(wide))).output == {"id": token}
