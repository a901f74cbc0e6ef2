-- Step 2 of the embedded store: the books, and what a provider said without proof.

ALTER TABLE attempts ADD COLUMN "recipient" TEXT CHECK (length("recipient") <= 256);       -- who is paid; null in rows of schema 1
ALTER TABLE attempts ADD COLUMN "reason_code" TEXT CHECK (length("reason_code") <= 128);   -- the provider's own word
ALTER TABLE attempts ADD COLUMN "reported_transaction" TEXT CHECK (length("reported_transaction") <= 128); -- named without proof, never evidence
ALTER TABLE attempts ADD COLUMN "answer_sha256" TEXT CHECK (length("answer_sha256") = 64); -- of the whole answer; null in rows of schema 1
ALTER TABLE attempts ADD COLUMN "schema_sha256" TEXT CHECK (length("schema_sha256") = 64); -- what the result means; null in rows of schema 1
ALTER TABLE attempts ADD COLUMN "new_key_proof" BLOB CHECK (length("new_key_proof") = 32); -- the one of its proofs that failing gives back
ALTER TABLE attempts ADD COLUMN "request_id" TEXT CHECK (length("request_id") <= 64);      -- of the request that brought the payment, in the log

-- What a payer's purchases under way may still take.
CREATE INDEX attempts_of_payer ON attempts ("payer") WHERE "expires_at" IS NULL;

-- The operator's books: one row for each payment received, written with the move to settled. Rows are never deleted,
-- and nothing in them changes but the refund, once. No key, only its SHA-256.
CREATE TABLE sales (
    "id"                 INTEGER NOT NULL PRIMARY KEY,
    "at"                 REAL    NOT NULL,
    "key_sha256"         TEXT    NOT NULL CHECK (length("key_sha256") = 64),
    "n"                  INTEGER NOT NULL,
    "protocol"           TEXT    NOT NULL CHECK (length("protocol") <= 32),
    "operation"          TEXT    NOT NULL CHECK (length("operation") <= 128),
    "release"            TEXT    NOT NULL CHECK (length("release") <= 64),
    "amount"             INTEGER NOT NULL CHECK ("amount" >= 0),       -- base units of the asset
    "asset"              TEXT    NOT NULL CHECK (length("asset") <= 128),
    "network"            TEXT    NOT NULL CHECK (length("network") <= 64),
    "recipient"          TEXT    CHECK (length("recipient") <= 256),   -- null where schema 1 did not keep it
    "payer"              TEXT    CHECK (length("payer") <= 256),
    "transaction"        TEXT    NOT NULL CHECK (length("transaction") <= 256),
    "reconciled"         INTEGER NOT NULL CHECK ("reconciled" IN (0, 1)), -- decided by an operator or the chain
    "refunded_at"        REAL,
    "refund_transaction" TEXT    CHECK (length("refund_transaction") <= 256),
    UNIQUE ("key_sha256", "n")
);

INSERT INTO sales
    ("at", "key_sha256", "n", "protocol", "operation", "release", "amount", "asset", "network", "payer", "transaction", "reconciled")
SELECT "updated_at", sha256_hex("key"), "n", "protocol", "operation", "release", "amount", "asset", "network", "payer", "transaction",
    EXISTS (SELECT 1 FROM audit WHERE audit."key" = attempts."key" AND audit."n" = attempts."n" AND audit."what" = 'settled')
FROM attempts WHERE "state" = 'settled' ORDER BY "updated_at";
