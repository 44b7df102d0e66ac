"""Commands load the settings, call one service each and print what it says."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import pytest

from inorder.app import App
from inorder.database.schema_plan import SchemaChange
from inorder.relay.stores.ports import Registration
from inorder.settings import Settings
from tests.unit.cli.conftest import Run
from tests.unit.cli.services import NoLog, provide


class FakeService:
    """A relay that ends by itself."""

    def __init__(self, settings: Settings, file: Path, load: Callable[[], Settings]) -> None:
        FakeService.seen = settings
        FakeService.file = file
        assert load().relay == settings.relay

    seen: Settings | None = None
    file: Path | None = None
    published = 12
    in_flight = 0
    address = ("127.0.0.1", 13000)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to give back."""

    def run(self, stop: threading.Event) -> None:
        """Ends by itself."""
        assert not stop.is_set()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replaces the services by fakes and records how they are called."""
    noted: dict[str, Any] = {}

    def run_upsert(app: App, **options: Any) -> dict[str, int]:
        noted.update(options, settings=app.settings, thread=threading.current_thread())
        return {"applied": 3, "rejected": 1}

    def relay_admin(app: App) -> Any:
        return SimpleNamespace(status=lambda: {"group": app.settings.relay.group, "waiting": 7})

    def run_demo(**options: Any) -> int:
        noted.update(options)
        return 5

    def reshard(app: App, **options: Any) -> Registration:
        noted.update(options)
        relay = app.settings.relay
        return Registration("outbox", relay.group, relay.strategy, options["shards"] or relay.shards, 2)

    def replay_outbox(_app: App, **options: Any) -> int:
        noted.update(options)
        return 9

    provide(
        monkeypatch,
        relay_admin=property(relay_admin),
        relay_service=lambda app, file, load: FakeService(app.settings, file, load),
        run_upsert=run_upsert,
        upsert_work=property(lambda app: SimpleNamespace(topics=(app.settings.pipeline.upsert.topic,))),
        pipeline_status=lambda _app: {
            "pipelines": ["upsert:messages"],
            "applied": 3,
            "partitions": [{"topic": "upsert", "partition": 0, "behind": 4}],
            "waiting": [{"topic": "upsert", "partition": 0, "since": "2026-05-01T12:00:00+00:00", "reason": "P0001"}],
        },
        install_schema=lambda app, layout: [
            SchemaChange("table", app.settings.relay.table, "outbox", f"CREATE {layout}")
        ],
        schema_sql=lambda app, layout, dialect: f"-- {layout} {dialect} {app.settings.relay.table}",
        action_log=NoLog(),
        reshard=reshard,
        replay_outbox=replay_outbox,
    )
    demo = ModuleType("inorder.demo")
    demo.__dict__["run"] = run_demo
    monkeypatch.setitem(sys.modules, "inorder.demo", demo)
    return noted


def test_version_is_printed(run: Run) -> None:
    ran = run("--version")
    assert (ran.code, ran.stdout.split()[0]) == (0, "inorder")


def test_config_show_prints_every_setting_with_its_source(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INORDER_RELAY__GROUP", "shop")
    ran = run("config", "show")
    assert ran.code == 0
    lines = {line.split()[0]: line.split()[1:] for line in ran.stdout.splitlines()}
    assert lines["relay.group"] == ["shop", "env", "(INORDER_RELAY__GROUP)"]
    assert lines["relay.batch_size"] == ["10000", "default"]


def test_config_show_prints_json_without_secrets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INORDER_DATABASE__URL", "postgresql+psycopg://u:hunter2@h/d")
    ran = run("config", "show", "--json")
    rows = {row["key"]: row for row in json.loads(ran.stdout)}
    assert rows["database.url"]["value"] == "postgresql+psycopg://u:***@h/d"
    assert rows["database.url"]["place"] == "INORDER_DATABASE__URL"
    assert "hunter2" not in ran.stdout + ran.stderr


def test_config_check_finds_a_property_that_the_client_does_not_know(run: Run) -> None:
    Path("inorder.toml").write_text('[kafka]\n"bootstrap.server" = "x:1"\n', "utf-8")
    ran = run("config", "check")
    assert ran.code == 3
    assert "bootstrap.server" in ran.stderr


def test_config_check_is_content_with_the_defaults(run: Run) -> None:
    assert run("config", "check").code == 0
    assert json.loads(run("config", "check", "--json").stdout)["ok"] is True


NOT_FOR_JAVA = '[kafka]\n"security.protocol" = "ssl"\n"enable.ssl.certificate.verification" = false\n'


def test_config_check_finds_a_property_that_spark_cannot_read_with(run: Run) -> None:
    Path("inorder.toml").write_text(f'{NOT_FOR_JAVA}[pipeline.upsert]\ntopic = "orders"\n', "utf-8")
    ran = run("config", "check")
    assert ran.code == 3
    assert '"enable.ssl.certificate.verification"' in ran.stderr
    assert "[pipeline.kafka_java]" in ran.stderr


@pytest.mark.parametrize(
    "rest",
    [
        '[relay]\ngroup = "shop"\n',
        '[pipeline]\nengine = "resident"\n',
        '[pipeline.kafka_java]\n"ssl.engine.factory.class" = "com.example.Trusting"\n',
    ],
    ids=["a relay alone", "the other engine", "done in Java"],
)
def test_config_check_lets_it_be_where_spark_does_not_read_with_it(run: Run, rest: str) -> None:
    Path("inorder.toml").write_text(f"{NOT_FOR_JAVA}{rest}", "utf-8")
    assert run("config", "check").code == 0


def test_properties_of_the_java_client_are_masked_and_some_are_refused(run: Run) -> None:
    Path("inorder.toml").write_text('[pipeline.kafka_java]\n"sasl.jaas.config" = "hunter2"\n', "utf-8")
    assert "hunter2" not in run("config", "show").stdout
    Path("inorder.toml").write_text('[pipeline.kafka_java]\n"isolation.level" = "read_uncommitted"\n', "utf-8")
    ran = run("config", "check")
    assert ran.code == 3
    assert "isolation.level" in ran.stderr


def test_a_named_config_file_is_used(run: Run, tmp_path: Path, calls: dict[str, Any]) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('[relay]\ngroup = "shop"\n', "utf-8")
    assert json.loads(run("relay", "status", "--config", str(file), "--json").stdout) == {
        "group": "shop",
        "waiting": 7,
    }
    assert run("relay", "status", "--config", str(tmp_path / "none.toml")).code == 3


def test_relay_run_ends_when_the_relay_does(run: Run, calls: dict[str, Any]) -> None:
    ran = run("relay", "run")
    assert (ran.code, ran.stdout) == (0, "")
    assert "The relay of group orders runs." in ran.stderr
    assert "Serves health and metrics at http://127.0.0.1:13000." in ran.stderr
    assert FakeService.seen is not None
    assert FakeService.file == Path("inorder.toml")


def test_relay_run_says_what_was_done_and_what_is_left(run: Run, calls: dict[str, Any]) -> None:
    said = run("relay", "run").stderr
    assert "12 records were published by this instance; 7 rows wait in the outbox." in said


def test_reshard_takes_the_shards_of_its_option_or_of_the_settings(run: Run, calls: dict[str, Any]) -> None:
    ran = run("relay", "reshard", "--shards", "4", "--json")
    assert json.loads(ran.stdout) == {
        "table": "outbox",
        "group": "orders",
        "strategy": "drain",
        "shards": 4,
        "epoch": 2,
    }
    assert "Now set relay.shards = 4" in ran.stderr
    assert "Now set" not in run("relay", "reshard", "--restored").stderr
    assert calls["restored"] is True
    assert run("relay", "reshard", "--shards", "0").code == 2


def test_replay_needs_to_know_which_rows(run: Run, calls: dict[str, Any]) -> None:
    assert run("outbox", "replay").code == 2
    ran = run("outbox", "replay", "--key", "42", "--since", "2026-01-31", "--dry-run")
    assert "9 rows to replay; nothing was done." in ran.stderr
    assert (calls["key"], calls["since"].isoformat()) == (b"42", "2026-01-31T00:00:00+00:00")
    assert json.loads(run("outbox", "replay", "--all", "--json").stdout) == {"rows": 9, "dry_run": False}


def test_schema_install_tells_what_it_made(run: Run, calls: dict[str, Any]) -> None:
    assert run("schema", "install", "--layout", "native").stderr == "created table outbox\n"
    made = json.loads(run("schema", "install", "--layout", "table", "--json").stdout)
    assert made == {"layout": "table", "made": ["CREATE table"]}


def test_schema_sql_is_data_on_stdout(run: Run, calls: dict[str, Any]) -> None:
    ran = run("schema", "sql", "--layout", "native", "--dialect", "mysql")
    assert (ran.code, ran.stdout, ran.stderr) == (0, "-- native mysql outbox\n", "")


def test_pipeline_run_passes_its_options_on_and_prints_totals(run: Run, calls: dict[str, Any]) -> None:
    ran = run("pipeline", "run", "upsert", "--once", "--master", "local[1]", "--json")
    assert json.loads(ran.stdout) == {"applied": 3, "rejected": 1}
    assert (calls["once"], calls["stop"].is_set()) == (True, False)
    assert (calls["settings"].pipeline.master, calls["settings"].pipeline.engine) == ("local[1]", "micro-batch")


@pytest.mark.parametrize(
    ("jobs", "code", "text"),
    [
        ("upser", 2, "there is no job 'upser'; there are upsert, replicate, expire, migrate, audit, relay"),
        ("upsert,", 2, "there is no job ''"),
        ("upsert,audit", 3, "The job 'audit' does not run beside others."),
        ("upsert,upsert", 3, "The job 'upsert' is named twice."),
    ],
)
def test_jobs_that_do_not_run_together_are_refused(
    run: Run, calls: dict[str, Any], jobs: str, code: int, text: str
) -> None:
    ran = run("pipeline", "run", jobs)
    assert (ran.code, text in " ".join(ran.stderr.replace("│", "").split())) == (code, True), ran.stderr
    assert not calls


def test_pipeline_status_prints_sums_and_then_partitions(run: Run, calls: dict[str, Any]) -> None:
    ran = run("pipeline", "status")
    assert ran.stdout.splitlines() == [
        "pipelines  upsert:messages",
        "applied    3",
        "topic   partition  behind",
        "upsert  0          4",
        "upsert[0] waits since 2026-05-01T12:00:00+00:00: P0001",
    ]
    assert json.loads(run("pipeline", "status", "--json").stdout)["partitions"][0]["behind"] == 4


def test_spark_never_starts_on_the_main_thread(run: Run, calls: dict[str, Any]) -> None:
    assert run("pipeline", "run", "upsert").code == 0
    assert calls["thread"] is not threading.main_thread()


def test_an_engine_on_the_command_line_goes_over_the_settings(run: Run, calls: dict[str, Any]) -> None:
    ran = run("pipeline", "run", "upsert", "--engine", "resident")
    assert ran.code == 0
    assert "reads topic upsert with the engine resident" in ran.stderr
    assert calls["settings"].pipeline.engine == "resident"


def test_an_unknown_engine_is_refused(run: Run, calls: dict[str, Any]) -> None:
    ran = run("pipeline", "run", "upsert", "--engine", "diesel")
    assert ran.code == 3
    assert "pipeline.engine" in ran.stderr


def test_the_demo_decides_the_exit_code(run: Run, calls: dict[str, Any]) -> None:
    assert run("demo", "--events", "10", "--json", "--seed", "4").code == 5
    assert calls == {"events": 10, "as_json": True, "seed": 4, "keep": None}


class StackWithPasswords:
    """What `up` asks servers, beside their addresses."""

    def write_settings(self) -> Path:
        Path("servers.toml").write_text("# passwords\n")
        return Path("servers.toml")

    def open_servers(self) -> list[str]:
        return ["Redis"]


def test_up_prints_addresses_and_stays_until_it_is_told_to_stop(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import inorder.cli.set_up as module

    stop = threading.Event()
    stop.set()
    seen: dict[str, Any] = {}

    class FakeStack(StackWithPasswords):
        def __init__(self, parts: tuple[str, ...], folder: Path | None, ports: dict[str, int]) -> None:
            seen.update(parts=parts, folder=folder, ports=ports)

        def supervise(self, stop: threading.Event, _report: object) -> None:
            seen["supervised"] = stop.wait()

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            seen["stopped"] = True

        def addresses(self) -> dict[str, str]:
            return {part: f"{part}-address" for part in seen["parts"]}

    class FakeSignals:
        def __init__(self, *_: object) -> None:
            """Takes what the real one takes."""

        def __enter__(self) -> threading.Event:
            return stop

        def __exit__(self, *_: object) -> None:
            """Nothing to give back."""

    monkeypatch.setattr(module, "stop_on_signals", FakeSignals)
    monkeypatch.setitem(sys.modules, "inorder.embedded", SimpleNamespace(Stack=FakeStack))
    chosen = ("--folder", "here", "--port", "postgres=15432", "--write-config", "made.toml")
    ran = run("up", "--json", "--with", "redis", "--with", "redis", *chosen)
    expected = {name: f"{name}-address" for name in ("postgres", "kafka", "redis")}
    assert json.loads(ran.stdout) == {**expected, "settings": "servers.toml"}
    assert "Every user of this machine can use Redis" in ran.stderr
    told = {"parts": ("postgres", "kafka", "redis"), "folder": Path("here"), "ports": {"postgres": 15_432}}
    assert seen == {**told, "supervised": True, "stopped": True}
    assert Path("made.toml").read_text() == "# passwords\n"
    assert Path("made.toml").stat().st_mode & 0o077 == 0
    assert "made.toml exists and was not changed" in run("up", *chosen).stderr
    assert run("up", "--port", "postgres=no").code == 2


def test_up_with_web_serves_pages_of_the_servers_that_it_prints(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"postgres": "postgresql+psycopg://p:geheim@127.0.0.1:1/d", "kafka": "127.0.0.1:2"}
    addresses["redis"] = "redis://r:3"
    sections = {"database": {"url": addresses["postgres"]}, "kafka": {"bootstrap.servers": addresses["kafka"]}}
    seen: list[Any] = []

    class FakeStack(StackWithPasswords):
        def __init__(self, **_: object) -> None:
            seen.append("servers")

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            seen.append("servers end")

        def addresses(self) -> dict[str, str]:
            return dict(addresses)

        def settings(self) -> dict[str, dict[str, str]]:
            return {**sections, "redis": {"url": addresses["redis"]}}

        def supervise(self, *_: object) -> None:
            seen.append("supervised")

    class FakeService:
        url = "http://127.0.0.1:4/"

        def __init__(self, settings: Settings) -> None:
            database, kafka, redis = settings.database, settings.kafka, settings.redis
            seen.append((database.require_url(), kafka.bootstrap_servers, str(redis.url), settings.web.listen))

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            seen.append("pages end")

    monkeypatch.setitem(sys.modules, "inorder.embedded", SimpleNamespace(Stack=FakeStack))
    monkeypatch.setitem(sys.modules, "inorder.web.server", SimpleNamespace(WebService=FakeService))
    Path("inorder.toml").write_text('[web]\nlisten = "127.0.0.1:4"\n[relay]\ngroup = "mine"\n', "utf-8")
    ran = run("up", "--json", "--web")
    shown = addresses | {"web": "http://127.0.0.1:4/", "settings": "servers.toml"}
    assert json.loads(ran.stdout) == shown | {"postgres": "postgresql+psycopg://p:***@127.0.0.1:1/d"}
    served = (addresses["postgres"], addresses["kafka"], addresses["redis"], "127.0.0.1:4")
    assert seen == ["servers", served, "supervised", "pages end", "servers end"]
    seen.clear()
    monkeypatch.setitem(sys.modules, "inorder.web.server", None)
    ran = run("up", "--web")
    assert (ran.code, seen) == (3, []), "nothing is started before"
    assert "inorder[web]" in ran.stderr
