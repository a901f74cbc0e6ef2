"""A second door to the service's database, which sees what is committed, and a journal that the database keeps itself.

The journal is written by triggers, in the transactions of the moves themselves: no move escapes it, whoever is killed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import apsw
import psycopg

from tests.faults.invariants import Change, Decision, Holder

PATIENCE: Final = 20.0
"""Seconds to wait for a database that is stopped."""

SQLITE_JOURNAL: Final = """
    CREATE TABLE journal (seq INTEGER PRIMARY KEY, key, n, claim, old, new, proof, expires_at);
    CREATE INDEX journal_by_key ON journal (key);
    CREATE TABLE freed (seq INTEGER PRIMARY KEY, key, claim);
    CREATE TRIGGER inserted AFTER INSERT ON attempts BEGIN
        INSERT INTO journal (key, n, claim, old, new, proof, expires_at)
        VALUES (NEW.key, NEW.n, NEW.claim, NULL, NEW.state, NEW.payment_id, NEW.expires_at);
    END;
    CREATE TRIGGER moved AFTER UPDATE ON attempts BEGIN
        INSERT INTO journal (key, n, claim, old, new, proof, expires_at)
        VALUES (NEW.key, NEW.n, NEW.claim, OLD.state, NEW.state, NEW.payment_id, NEW.expires_at);
    END;
    CREATE TRIGGER deleted AFTER DELETE ON attempts BEGIN
        INSERT INTO journal (key, n, claim, old, new, proof, expires_at)
        VALUES (OLD.key, OLD.n, OLD.claim, OLD.state, NULL, OLD.payment_id, OLD.expires_at);
    END;
    CREATE TRIGGER freed AFTER DELETE ON proofs BEGIN
        INSERT INTO freed (key, claim) VALUES (OLD.key, OLD.claim);
    END;
"""
POSTGRES_JOURNAL: Final = """
    CREATE TABLE journal (
        seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        key TEXT, n INTEGER, claim TEXT, old TEXT, new TEXT, proof TEXT, expires_at DOUBLE PRECISION
    );
    CREATE INDEX journal_by_key ON journal (key);
    CREATE TABLE freed (seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key TEXT, claim TEXT);
    CREATE FUNCTION keep_journal() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            INSERT INTO ranking_evaluate.journal (key, n, claim, old, new, proof, expires_at)
            VALUES (OLD.key, OLD.n, OLD.claim, OLD.state, NULL, OLD.payment_id, OLD.expires_at);
        ELSE
            INSERT INTO ranking_evaluate.journal (key, n, claim, old, new, proof, expires_at)
            VALUES (NEW.key, NEW.n, NEW.claim, CASE WHEN TG_OP = 'UPDATE' THEN OLD.state END, NEW.state,
                    NEW.payment_id, NEW.expires_at);
        END IF;
        RETURN NULL;
    END $$;
    CREATE FUNCTION keep_freed() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO ranking_evaluate.freed (key, claim) VALUES (OLD.key, OLD.claim);
        RETURN NULL;
    END $$;
    CREATE TRIGGER journal AFTER INSERT OR UPDATE OR DELETE ON attempts
        FOR EACH ROW EXECUTE FUNCTION keep_journal();
    CREATE TRIGGER freed AFTER DELETE ON proofs FOR EACH ROW EXECUTE FUNCTION keep_freed();
"""


@dataclass(frozen=True, slots=True)
class Standing:
    """One row of a key, as the decision table looks at it."""

    n: int
    state: str
    lease: float | None
    expires_at: float | None
    fingerprint: str
    credential_digest: str


class Witness:
    """Reads the database that a DATABASE_URL names; every look is a connection's of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._path = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else None

    @property
    def files(self) -> list[Path]:
        """The files of an embedded database, its journal among them."""
        return [] if self._path is None else sorted(self._path.parent.glob(f"{self._path.name}*"))

    def keep_journal(self) -> None:
        """Let the database keep a journal from now on."""
        if self._path is None:
            with self._postgres() as db:
                db.execute(POSTGRES_JOURNAL)
            return
        with contextlib.closing(self._sqlite()) as db:
            db.execute(SQLITE_JOURNAL)

    def ask(self, query: str, *values: object) -> list[Any]:
        """Return the rows of a query, in which `?` stands for a value."""
        if self._path is None:
            return self._ask_postgres(query.replace("?", "%s").encode(), values)
        with contextlib.closing(self._sqlite()) as db:
            return db.execute(query, values).fetchall()

    def _ask_postgres(self, query: bytes, values: tuple[object, ...]) -> list[Any]:
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                with self._postgres() as db:
                    return db.execute(query, values).fetchall()
            except psycopg.OperationalError:
                # Some trials stop the server; it comes back.
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.02)

    @contextlib.contextmanager
    def _postgres(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self._url, autocommit=True, options="-c search_path=ranking_evaluate") as db:
            yield db

    def _sqlite(self) -> apsw.Connection:
        assert self._path is not None
        # Not read only: after a kill it is the first connection that recovers the log.
        db = apsw.Connection(str(self._path))
        db.set_busy_timeout(int(PATIENCE * 1000))
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return db

    def holders(self, proof: bytes) -> tuple[Holder, ...]:
        """Return the rows that hold a proof."""
        query = "SELECT a.claim, state, credential_digest, receipt FROM attempts a JOIN proofs p ON a.claim = p.claim"
        return tuple(Holder(*row) for row in self.ask(f"{query} WHERE p.proof = ?", proof))

    def settled(self, key: str) -> tuple[Holder, ...]:
        """Return the settled rows of a key."""
        query = "SELECT claim, state, credential_digest, receipt FROM attempts WHERE key = ? AND state = 'settled'"
        return tuple(Holder(*row) for row in self.ask(query, key))

    def rows(self, key: str) -> list[Standing]:
        """Return the rows of a key, by rising n."""
        query = "SELECT n, state, lease, expires_at, fingerprint, credential_digest FROM attempts WHERE key = ?"
        return [Standing(*row) for row in self.ask(f"{query} ORDER BY n", key)]

    def is_recorded(self, proof: bytes, now: float) -> bool:
        """Whether anything but a lapsed reservation holds a proof."""
        query = "SELECT a.state, a.lease FROM proofs p LEFT JOIN attempts a ON a.claim = p.claim WHERE p.proof = ?"
        return any(not (state == "reserved" and lease <= now) for state, lease in self.ask(query, proof))

    def sold(self) -> int:
        """Return the base units in the books."""
        [(amount,)] = self.ask("SELECT coalesce(sum(amount), 0) FROM sales")
        return int(amount)

    def was_paid(self, key: str) -> bool:
        """Whether a purged attempt of the key was settled."""
        return bool(self.ask("SELECT 1 FROM proofs WHERE key = ? AND last_state = 'settled'", key))

    def changes(self, after: int = 0) -> list[tuple[int, Change]]:
        """Return what the journal says since a line of it."""
        query = "SELECT seq, key, n, claim, old, new, proof, expires_at FROM journal WHERE seq > ? ORDER BY seq"
        return [(seq, Change(*rest)) for seq, *rest in self.ask(query, after)]

    def freed(self, after: int = 0) -> list[tuple[int, str]]:
        """Return the claims of deleted proofs since a line of their journal."""
        return [(seq, claim) for seq, claim in self.ask("SELECT seq, claim FROM freed WHERE seq > ?", after)]

    def decisions(self) -> list[Decision]:
        """Return the audit."""
        return [Decision(*row) for row in self.ask("SELECT key, n, who, what FROM audit ORDER BY at")]

    def cell(
        self,
        key: str,
        *,
        now: float,
        fingerprint: str,
        digest: str | None,
        proof: bytes | None,
        valid_before: float | None,
    ) -> tuple[int, str | None]:
        """Return what docs/lifecycle.md, section 4, says of a request by its rows; a RESERVE is a sale to who can pay.

        Args:
            key: The Idempotency-Key.
            now: The store's clock.
            fingerprint: Of the request.
            digest: The credential's, or None.
            proof: What the credential may use once.
            valid_before: The credential's last second.
        """
        rows = [row for row in self.rows(key) if not (row.state == "reserved" and (row.lease or 0) <= now)]
        top = rows[-1] if rows else None
        if top is not None and top.expires_at is not None and top.expires_at <= now:
            top = None
        if top is None and (any(row.state == "settled" for row in rows) or self.was_paid(key)):
            return 409, "IDEMPOTENCY_CONFLICT"
        if top is not None and top.fingerprint != fingerprint:
            return 409, "IDEMPOTENCY_CONFLICT"
        state = "none" if top is None else top.state
        if state == "uncertain" or (state == "settling" and top is not None and (top.lease or 0) <= now):
            return 409, "PAYMENT_UNCERTAIN"
        is_same = top is not None and digest == top.credential_digest
        if proof is not None and not is_same and self.is_recorded(proof, now):
            return 409, "DUPLICATE_PROOF"
        if state in {"reserved", "settling"}:
            return 409, "PAYMENT_IN_PROGRESS" if digest is None or is_same else "IDEMPOTENCY_CONFLICT"
        if state == "settled":
            return (200, None) if is_same else (409, "IDEMPOTENCY_CONFLICT")
        if digest is None:
            return 402, "PAYMENT_REQUIRED"
        if is_same or (valid_before or 0) < now + 10:
            return 402, "PAYMENT_REJECTED"
        return 200, None
