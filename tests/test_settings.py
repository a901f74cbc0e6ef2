"""Every variable is read, every wrong one stops the start with a line that names it and says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from pathlib import Path
from types import MappingProxyType

import pytest
from x402.mechanisms.evm.default_assets import DEFAULT_ASSETS

from ranking_evaluate.payments.config import TESTNETS, USDC, MppConfig, Token, X402Config, X402Network
from ranking_evaluate.rates import Rates
from ranking_evaluate.settings import PREFIX, VARIABLES, Settings, SettingsError, document, read_settings, values

PAYEE = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
BASE_USDC = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
SECRET = "s" * 32

X402 = {"X402_PAY_TO": PAYEE, "X402_NETWORK": "eip155:84532", "X402_FACILITATOR_URL": "https://facilitator.example"}
MPP = {
    "MPP_RECIPIENT": PAYEE,
    "MPP_CHAIN_ID": "42431",
    "MPP_RPC_URL": "https://rpc.example/of-mpp",
    "MPP_CURRENCY": "0x20c0000000000000000000000000000000000000",
    "MPP_SECRET_KEY": SECRET,
}
Given = Mapping[str, str]
NOTHING: Given = MappingProxyType({})
COINBASE = {"CDP_API_KEY_ID", "CDP_API_KEY_SECRET"}
OWN_TOKEN = {"X402_ASSET": BASE_USDC, "X402_ASSET_NAME": "My Dollar", "X402_ASSET_VERSION": "7"}


def read(given: Given = NOTHING, /, *, host: str = "127.0.0.1", port: int = 8402, **more: str) -> Settings:
    return read_settings({PREFIX + name: value for name, value in {**given, **more}.items()}, host=host, port=port)


def faults(given: Given = NOTHING, /, *, host: str = "127.0.0.1", **more: str) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        read({**given, **more}, host=host)
    assert str(refused.value).splitlines() == refused.value.faults
    return refused.value.faults


def test_without_any_variable_the_published_defaults_hold() -> None:
    assert read() == Settings(
        public_origin="http://127.0.0.1:8402",
        database_url="sqlite:///ranking-evaluate.db",
        x402=None,
        mpp=None,
        verify_timeout=10.0,
        settle_timeout=90.0,
        request_rate="120/minute",
        payment_rate="30/minute",
        rate_storage_url="memory://",
        max_in_flight=256,
        evaluation_workers=None,
        evaluation_rate="20/minute",
        trusted_proxies=(),
        cors_origins=("*",),
        reconcile=True,
        log_level="info",
        metrics_port=None,
        metrics_host="127.0.0.1",
        security_contact=None,
    )


def test_every_variable_is_read() -> None:
    given = {
        "PUBLIC_ORIGIN": "https://rank.example",
        "DATABASE_URL": "postgresql://host/db",
        **X402,
        **OWN_TOKEN,
        "X402_FACILITATOR_AUTHORIZATION": "Bearer abc",
        "X402_MAX_TIMEOUT": "60",
        "X402_RPC_URL": "https://rpc.example/of-x402",
        **MPP,
        "MPP_CURRENCY": "0x20C000000000000000000000b9537d11c60E8b50, 0x20c0000000000000000000000000000000000000",
        "MPP_CHALLENGE_SECONDS": "25",
        "MPP_PREVIOUS_SECRET_KEY": "p" * 32,
        "VERIFY_TIMEOUT": "2.5",
        "SETTLE_TIMEOUT": "30",
        "REQUEST_RATE": "5/second",
        "PAYMENT_RATE": "1/hour",
        "RATE_STORAGE_URL": "redis://cache:6379",
        "MAX_IN_FLIGHT": "7",
        "EVALUATION_WORKERS": "3",
        "EVALUATION_RATE": "5/hour",
        "TRUSTED_PROXIES": "10.0.0.0/8, ::1",
        "CORS_ORIGINS": "https://a.example/, http://localhost:3000",
        "RECONCILE": "off",
        "LOG_LEVEL": "DEBUG",
        "METRICS_PORT": "9100",
        "METRICS_HOST": "10.1.2.3",
        "SECURITY_CONTACT": "mailto:security@rank.example",
        "PREVIOUS_ORIGIN": "https://previous.rank.example/",
        "WALLET_KEY": "0x" + "11" * 32,
    }
    assert {PREFIX + name for name in given} | COINBASE == {one.full_name for one in VARIABLES.values()}
    assert read(given) == Settings(
        public_origin="https://rank.example",
        database_url="postgresql://host/db",
        x402=X402Config(
            pay_to=PAYEE,
            networks=(X402Network("eip155:84532", Token(BASE_USDC, "My Dollar", "7"), "https://rpc.example/of-x402"),),
            facilitator_url="https://facilitator.example",
            facilitator_authorization="Bearer abc",
            max_timeout=60,
            verify_timeout=2.5,
            settle_timeout=30.0,
        ),
        mpp=MppConfig(
            recipient=PAYEE,
            chain_id=42431,
            rpc_url="https://rpc.example/of-mpp",
            currencies=(
                "0x20C000000000000000000000b9537d11c60E8b50",
                "0x20c0000000000000000000000000000000000000",
            ),
            challenge_seconds=25,
            secret_key=SECRET,
            previous_secret_key="p" * 32,
            realm="rank.example",
            verify_timeout=2.5,
            settle_timeout=30.0,
        ),
        verify_timeout=2.5,
        settle_timeout=30.0,
        request_rate="5/second",
        payment_rate="1/hour",
        rate_storage_url="redis://cache:6379",
        max_in_flight=7,
        evaluation_workers=3,
        evaluation_rate="5/hour",
        trusted_proxies=("10.0.0.0/8", "::1"),
        cors_origins=("https://a.example", "http://localhost:3000"),
        reconcile=False,
        log_level="debug",
        metrics_port=9100,
        metrics_host="10.1.2.3",
        security_contact="mailto:security@rank.example",
        previous_origin="https://previous.rank.example",
    )


@pytest.mark.parametrize("written", ["0/day", "0 / day", " 0/day "])
def test_a_payment_rate_of_nothing_ends_sales(written: str) -> None:
    rate = read({"PAYMENT_RATE": written}).payment_rate
    assert rate is not None
    assert Rates("memory://", None, rate).sales_ended
    assert not Rates("memory://", None, "1/day").sales_ended
    assert not Rates("memory://", None, None).sales_ended


WRONG = [
    ("PREVIOUS_ORIGIN", "previous.rank.example", "https://your.host"),
    ("PAYMENT_RATE", "0/minute", "refuse everybody"),
    ("PAYMENT_RATE", "-1/day", "120/minute"),
    ("REQUEST_RATE", "0/day", "refuse everybody"),
    ("EVALUATION_RATE", "0/minute", "refuse everybody"),
    ("PUBLIC_ORIGIN", "rank.example", "https://your.host"),
    ("PUBLIC_ORIGIN", "ftp://rank.example", "https://your.host"),
    ("PUBLIC_ORIGIN", "https://rank.example/shop", "without a path"),
    ("PUBLIC_ORIGIN", "https://rank.example?x=1", "without a path"),
    ("PUBLIC_ORIGIN", "https://user@rank.example", "without a path"),
    ("PUBLIC_ORIGIN", "https://rank.example:99999", "65535"),
    ("PUBLIC_ORIGIN", "http://rank.example", "must be https"),
    ("DATABASE_URL", "mysql://host/db", "sqlite:///path"),
    ("DATABASE_URL", "sqlite:///", "sqlite:///path"),
    ("X402_PAY_TO", PAYEE[:-1], "40 hexadecimal digits"),
    ("X402_PAY_TO", "0x" + "0" * 40, "40 hexadecimal digits"),
    ("X402_PAY_TO", PAYEE.replace("5aAe", "5AAe"), "EIP-55"),
    ("X402_NETWORK", "base-sepolia", "CAIP-2"),
    ("X402_NETWORK", "solana:mainnet", "CAIP-2"),
    ("X402_FACILITATOR_URL", "facilitator.example", "http or https"),
    ("X402_FACILITATOR_URL", "https://facilitator.example?key=1", "http or https"),
    ("X402_FACILITATOR_URL", "https://facilitator.example:port", "Port"),
    ("X402_FACILITATOR_URL", "https://me:secret@facilitator.example", "X402_FACILITATOR_AUTHORIZATION"),
    ("X402_FACILITATOR_AUTHORIZATION", "Bearer a\u0301", "ASCII"),
    ("X402_FACILITATOR_AUTHORIZATION", "Bearer a\r\nX-Other: b", "ASCII"),
    ("X402_ASSET", "USDC", "40 hexadecimal digits"),
    ("X402_MAX_TIMEOUT", "29", "between 30 and 600"),
    ("X402_MAX_TIMEOUT", "601", "between 30 and 600"),
    ("X402_MAX_TIMEOUT", "1e2", "whole number"),
    ("X402_FACILITATOR_URL", "http://facilitator.example", "must be https, except for a loopback address"),
    ("X402_RPC_URL", "ws://rpc.example", "http or https"),
    ("X402_RPC_URL", "http://10.0.0.7:8545", "must be https, except for a loopback address"),
    ("MPP_RPC_URL", "http://localhost.example", "must be https, except for a loopback address"),
    ("MPP_RECIPIENT", "payee.eth", "40 hexadecimal digits"),
    ("MPP_CHAIN_ID", "0", "above zero"),
    ("MPP_RPC_URL", "rpc", "http or https"),
    ("MPP_CURRENCY", "pathUSD", "40 hexadecimal digits"),
    ("MPP_CURRENCY", "0x20c0000000000000000000000000000000000000,", "40 hexadecimal digits"),
    ("MPP_CURRENCY", "0x20C0000000000000000000000000000000000000, 0x20c0" + "0" * 36, "names an address twice"),
    ("MPP_CURRENCY", ",".join(f"0x{n:040x}" for n in (1, 2, 3)), "more than 2 addresses"),
    ("MPP_CHALLENGE_SECONDS", "19", "between 20 and 300"),
    ("MPP_CHALLENGE_SECONDS", "301", "between 20 and 300"),
    ("MPP_SECRET_KEY", "s" * 31, "32 bytes"),
    ("MPP_PREVIOUS_SECRET_KEY", "short", "32 bytes"),
    ("VERIFY_TIMEOUT", "0", "between 0.1 and 600"),
    ("VERIFY_TIMEOUT", "nan", "between 0.1 and 600"),
    ("SETTLE_TIMEOUT", "inf", "between 0.1 and 600"),
    ("SETTLE_TIMEOUT", "soon", "between 0.1 and 600"),
    ("REQUEST_RATE", "many", "120/minute"),
    ("PAYMENT_RATE", "3/fortnight", "120/minute"),
    ("RATE_STORAGE_URL", "memcached://host", "memory://"),
    ("MAX_IN_FLIGHT", "0", "above zero"),
    ("EVALUATION_WORKERS", "all", "whole number"),
    ("EVALUATION_RATE", "20 s/minute", "120/minute"),
    ("MAX_IN_FLIGHT", "\u0663", "whole number"),
    ("TRUSTED_PROXIES", "10.0.0.1, proxy.example", "IP addresses"),
    ("TRUSTED_PROXIES", "10.0.0.5/8", "write 10.0.0.0/8"),
    ("TRUSTED_PROXIES", "192.0.2.1, 2001:db8::1/64", "bits set behind its prefix"),
    ("CORS_ORIGINS", "a.example", "origins"),
    ("RECONCILE", "yes", "neither chain nor off"),
    ("LOG_LEVEL", "verbose", "debug, info, warning, error"),
    ("METRICS_PORT", "65536", "port"),
    ("METRICS_HOST", "everywhere", "not an IP address"),
    ("SECURITY_CONTACT", "security@rank.example", "mailto:"),
]


@pytest.mark.parametrize(("name", "value", "hint"), WRONG)
def test_a_wrong_value_is_named_with_what_to_do(name: str, value: str, hint: str) -> None:
    (fault,) = faults(X402 | OWN_TOKEN | MPP | {name: value})
    assert fault.startswith(f"{PREFIX}{name}: ")
    assert hint in fault


def test_every_variable_that_can_be_wrong_was_tried() -> None:
    free_text = {"X402_ASSET_NAME", "X402_ASSET_VERSION", "WALLET_KEY", *COINBASE}
    assert {name for name, _, _ in WRONG} == set(VARIABLES) - free_text


def test_all_faults_are_told_at_once() -> None:
    told = faults(X402 | {"X402_PAY_TO": "me"}, LOG_LEVEL="loud", SETTLE_TIMEOUT="-1")
    assert {fault.split(":")[0] for fault in told} == {
        f"{PREFIX}LOG_LEVEL",
        f"{PREFIX}SETTLE_TIMEOUT",
        f"{PREFIX}X402_PAY_TO",
    }


@pytest.mark.parametrize(("name", "hint"), [("X402_PAYTO", "X402_PAY_TO"), ("SETTLE_TIMOUT", "SETTLE_TIMEOUT")])
def test_an_unknown_variable_is_refused_with_the_name_that_was_meant(name: str, hint: str) -> None:
    (fault,) = faults({name: "1"})
    assert fault == f"{PREFIX}{name}: there is no such variable; did you mean {PREFIX}{hint}?"


def test_an_unknown_variable_like_nothing_is_told_where_all_of_them_are() -> None:
    assert faults(QQQQQQ="1") == [f"{PREFIX}QQQQQQ: there is no such variable; docs/settings.md has all"]


def test_other_programs_variables_are_nobodys_business() -> None:
    assert read_settings({"PATH": "/bin", "RANKING": "x"}, host="127.0.0.1", port=8402) == read()


@pytest.mark.parametrize("missing", X402)
def test_half_an_x402_protocol_names_what_is_missing(missing: str) -> None:
    (fault,) = faults({name: value for name, value in X402.items() if name != missing})
    assert fault.startswith(f"{PREFIX}{missing}: needed")


@pytest.mark.parametrize("missing", MPP)
def test_half_an_mpp_protocol_names_what_is_missing(missing: str) -> None:
    (fault,) = faults({name: value for name, value in MPP.items() if name != missing})
    assert fault.startswith(f"{PREFIX}{missing}: needed")


def test_an_optional_variable_alone_is_half_a_protocol_too() -> None:
    (fault,) = faults(X402_RPC_URL="https://rpc.example")
    assert fault.startswith(f"{PREFIX}X402_PAY_TO: needed, since {PREFIX}X402_RPC_URL is set")


def test_a_protocol_of_empty_variables_is_no_protocol() -> None:
    assert read(dict.fromkeys(X402 | MPP, " ")).x402 is None


@pytest.mark.parametrize(
    ("network", "asset", "name"),
    [
        ("eip155:8453", BASE_USDC, "USD Coin"),
        ("eip155:84532", "0x036CbD53842c5426634e7929541eC2318f3dCF7e", "USDC"),
    ],
)
def test_a_known_network_pays_in_its_usdc(network: str, asset: str, name: str) -> None:
    x402 = read(X402 | {"X402_NETWORK": network}).x402
    assert x402 is not None
    assert x402.networks == (X402Network(network, Token(asset, name, "2")),)


def test_an_unknown_network_needs_the_whole_token() -> None:
    assert "has no known USDC" in faults(X402 | {"X402_NETWORK": "eip155:31337"})[0]
    x402 = read(X402 | OWN_TOKEN | {"X402_NETWORK": "eip155:31337"}).x402
    assert x402 is not None
    assert x402.networks == (X402Network("eip155:31337", Token(BASE_USDC, "My Dollar", "7")),)


TWO_NETWORKS = X402 | {"X402_NETWORK": "eip155:84532, eip155:31337"}
SECOND_TOKEN = {name: f"eip155:31337={value}" for name, value in OWN_TOKEN.items()}


def test_networks_keep_their_order_and_each_has_its_own_token_and_node() -> None:
    x402 = read(
        TWO_NETWORKS
        | SECOND_TOKEN
        | {
            "X402_ASSET_NAME": "eip155:31337=Dollar, of the Bank=1",
            "X402_RPC_URL": "eip155:31337=http://127.0.0.1:8545 , eip155:84532=https://rpc.example/a,b",
        }
    ).x402
    assert x402 is not None
    assert x402.networks == (
        X402Network("eip155:84532", USDC["eip155:84532"], "https://rpc.example/a,b"),
        X402Network("eip155:31337", Token(BASE_USDC, "Dollar, of the Bank=1", "7"), "http://127.0.0.1:8545"),
    )


def test_a_node_may_be_named_for_some_networks_only() -> None:
    x402 = read(TWO_NETWORKS | SECOND_TOKEN | {"X402_RPC_URL": "eip155:31337=https://rpc.example"}).x402
    assert x402 is not None
    assert [network.rpc_url for network in x402.networks] == [None, "https://rpc.example"]


def test_pairs_are_taken_for_one_network_too() -> None:
    given = X402 | OWN_TOKEN | {"X402_NETWORK": "eip155:31337", "X402_RPC_URL": "https://rpc.example"}
    assert read(given) == read(given | SECOND_TOKEN | {"X402_RPC_URL": "eip155:31337=https://rpc.example"})


@pytest.mark.parametrize(
    ("wrong", "name", "hint"),
    [
        ({"X402_NETWORK": "eip155:84532,eip155:84532"}, "X402_NETWORK", "names a network twice"),
        ({"X402_NETWORK": "eip155:84532,"}, "X402_NETWORK", "separated by commas"),
        ({"X402_NETWORK": "eip155:84532 eip155:1"}, "X402_NETWORK", "separated by commas"),
        ({"X402_ASSET": ""}, "X402_ASSET", "some are set for eip155:31337"),
        ({"X402_ASSET_NAME": "eip155:84532=USDC"}, "X402_ASSET", "some are set for eip155:84532"),
        (dict.fromkeys(OWN_TOKEN, ""), "X402_ASSET", "eip155:31337 has no known USDC"),
        ({"X402_ASSET": BASE_USDC}, "X402_ASSET", "which network is it for? Write eip155:84532=value"),
        ({"X402_RPC_URL": "https://rpc.example"}, "X402_RPC_URL", "which network is it for?"),
        ({"X402_RPC_URL": "eip155:1=https://rpc.example"}, "X402_RPC_URL", "eip155:1 is not in X402_NETWORK"),
        ({"X402_RPC_URL": "eip155:31337=http://rpc.example"}, "X402_RPC_URL", "must be https"),
        ({"X402_RPC_URL": "eip155:31337=https://a,eip155:31337=https://b"}, "X402_RPC_URL", "a network twice"),
        ({"X402_RPC_URL": "eip155:31337=https://a,https://b"}, "X402_RPC_URL", "http or https"),
        ({"X402_ASSET": "eip155:31337=0x12"}, "X402_ASSET", "40 hexadecimal digits"),
        ({"X402_NETWORK": "eip155:8453,eip155:31337"}, "X402_NETWORK", "mix a mainnet with a testnet"),
    ],
)
def test_half_configured_networks_are_told_in_one_line(wrong: dict[str, str], name: str, hint: str) -> None:
    found = faults(TWO_NETWORKS | SECOND_TOKEN | wrong)
    assert found[0].startswith(f"{PREFIX}{name}: ")
    assert hint in found[0]
    assert "https://a,https://b" not in found[0], "an address may hold a key, so it is not quoted"


@pytest.mark.parametrize("chain_id", ["4217", "42431"])
def test_the_money_of_every_network_is_compared_with_that_of_mpp(chain_id: str) -> None:
    given = MPP | X402 | {"X402_NETWORK": "eip155:8453,eip155:137", "MPP_CHAIN_ID": chain_id}
    if chain_id == "4217":
        assert read(given).mpp is not None
    else:
        (fault,) = faults(given)
        assert "MPP_CHAIN_ID 42431 mix a mainnet with a testnet" in fault


@pytest.mark.parametrize("alone", OWN_TOKEN)
def test_a_part_of_a_token_is_never_mixed_with_the_known_one(alone: str) -> None:
    (fault,) = faults(X402 | {alone: OWN_TOKEN[alone]})
    assert "go together" in fault


@pytest.mark.parametrize(
    ("network", "chain_id", "mixed"),
    [
        ("eip155:8453", "4217", False),
        ("eip155:84532", "42431", False),
        ("eip155:8453", "42431", True),
        ("eip155:84532", "4217", True),
    ],
)
def test_real_and_test_money_are_not_mixed(network: str, chain_id: str, mixed: bool) -> None:
    given = X402 | MPP | {"X402_NETWORK": network, "MPP_CHAIN_ID": chain_id}
    if mixed:
        (fault,) = faults(given)
        assert "mix a mainnet with a testnet" in fault
    else:
        assert read(given).mpp is not None


@pytest.mark.parametrize("address", [PAYEE.lower(), "0x" + PAYEE[2:].upper(), PAYEE])
def test_an_address_without_a_checksum_or_with_a_right_one_is_taken(address: str) -> None:
    x402 = read(X402 | {"X402_PAY_TO": address}).x402
    assert x402 is not None
    assert x402.pay_to == address


def test_one_mistyped_digit_of_a_checksummed_address_is_found() -> None:
    mistyped = PAYEE[:-1] + "e"
    assert "mistyped" in faults(X402 | {"X402_PAY_TO": mistyped})[0]


@pytest.mark.parametrize(
    ("host", "origin"),
    [("127.0.0.1", "http://127.0.0.1:9000"), ("localhost", "http://localhost:9000"), ("::1", "http://[::1]:9000")],
)
def test_a_loopback_address_serves_as_origin(host: str, origin: str) -> None:
    assert read(host=host, port=9000).public_origin == origin


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "rank.example"])  # noqa: S104 - None is bound.
def test_every_other_address_needs_a_public_origin(host: str) -> None:
    (fault,) = faults(host=host)
    assert fault.startswith(f"{PREFIX}PUBLIC_ORIGIN: needed, since {host} is not a loopback address")
    assert read(host=host, PUBLIC_ORIGIN="https://rank.example").public_origin == "https://rank.example"


def test_the_origin_loses_its_slash_and_gives_mpp_its_realm() -> None:
    settings = read(MPP, PUBLIC_ORIGIN="https://rank.example:8443/")
    assert settings.public_origin == "https://rank.example:8443"
    assert settings.mpp is not None
    assert settings.mpp.realm == "rank.example"


def test_an_empty_rate_or_origin_list_switches_it_off() -> None:
    settings = read(REQUEST_RATE="", PAYMENT_RATE="", CORS_ORIGINS="", TRUSTED_PROXIES="", METRICS_PORT="")
    assert (settings.request_rate, settings.payment_rate, settings.cors_origins) == (None, None, ())


def test_secrets_never_show() -> None:
    secrets = {
        "DATABASE_URL": "postgresql://user:hidden-1@host/db",
        "X402_FACILITATOR_AUTHORIZATION": "hidden-2",
        "X402_RPC_URL": "https://rpc.example/hidden-3",
        "MPP_RPC_URL": "https://rpc.example/hidden-4",
        "MPP_SECRET_KEY": "hidden-5" * 4,
        "MPP_PREVIOUS_SECRET_KEY": "hidden-6" * 4,
        "RATE_STORAGE_URL": "redis://:hidden-7@cache",
        "WALLET_KEY": "hidden-8",
    }
    assert "hidden" not in repr(read(X402 | MPP | secrets))


@pytest.mark.parametrize("name", ["MPP_SECRET_KEY", "MPP_PREVIOUS_SECRET_KEY", "X402_FACILITATOR_AUTHORIZATION"])
def test_a_wrong_secret_is_not_quoted(name: str) -> None:
    (fault,) = faults(X402 | MPP | {name: "canary\n"[:6] + "\x07"})
    assert "canary" not in fault


def test_the_document_has_a_row_for_every_variable_with_its_meaning_and_its_default() -> None:
    rows = {row.split("`")[1]: row for row in document.render().splitlines() if row.startswith("| `")}
    assert set(rows) == {variable.full_name for variable in VARIABLES.values()}
    for variable in VARIABLES.values():
        assert f" | {variable.meaning} | " in rows[variable.full_name]
        assert variable.default in rows[variable.full_name]
    assert rows["RANKING_EVALUATE_MAX_IN_FLIGHT"].endswith("| `256` |")
    assert rows["RANKING_EVALUATE_METRICS_PORT"].endswith("| none |")
    assert rows["RANKING_EVALUATE_MPP_CHAIN_ID"].endswith("| **required** |")


def test_the_committed_document_is_what_is_rendered() -> None:
    committed = Path(__file__).parent.parent / document.PATH
    assert committed.read_text(encoding="utf-8") == document.render(), "run `ranking-evaluate reference`"


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        read().log_level = "debug"  # type: ignore[misc]


@pytest.mark.parametrize("url", ["http://127.0.0.1:8545", "http://[::1]:8545", "http://localhost", "https://10.0.0.7"])
def test_a_provider_on_this_machine_may_be_asked_without_tls(url: str) -> None:
    assert values.url(url) == values.facilitator(url) == url


# The chains that viem 2.56.9 marks `testnet: true`, of those for which the x402 SDK has a default asset.
SDK_TESTNETS = {51, 1328, 2201, 10143, 31611, 72344, 84532, 181228, 421614, 5042002, 11142220}


def test_every_network_that_the_sdk_knows_counts_as_what_it_is() -> None:
    for network in DEFAULT_ASSETS:
        assert (network in TESTNETS) == (int(network.removeprefix("eip155:")) in SDK_TESTNETS), network
