-- Step 2 of the shared store: the books, and what a provider said without proof; sqlite_2.sql is the embedded one's.

ALTER TABLE attempts
    ADD COLUMN "recipient" TEXT CHECK (length("recipient") <= 256),       -- who is paid; null in rows of schema 1
    ADD COLUMN "reason_code" TEXT CHECK (length("reason_code") <= 128),   -- the provider's own word
    ADD COLUMN "reported_transaction" TEXT CHECK (length("reported_transaction") <= 128), -- named without proof, never evidence
    ADD COLUMN "answer_sha256" TEXT CHECK (length("answer_sha256") = 64), -- of the whole answer; null in rows of schema 1
    ADD COLUMN "schema_sha256" TEXT CHECK (length("schema_sha256") = 64), -- what the result means; null in rows of schema 1
    ADD COLUMN "new_key_proof" BYTEA CHECK (length("new_key_proof") = 32), -- the one of its proofs that failing gives back
    ADD COLUMN "request_id" TEXT CHECK (length("request_id") <= 64);      -- of the request that brought the payment, in the log

-- What a payer's purchases under way may still take.
CREATE INDEX attempts_of_payer ON attempts ("payer") WHERE "expires_at" IS NULL;

-- The operator's books: one row for each payment received, written with the move to settled. Rows are never deleted,
-- and nothing in them changes but the refund, once. No key, only its SHA-256.
CREATE TABLE sales (
    "id"                 BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    "at"                 DOUBLE PRECISION NOT NULL,
    "key_sha256"         TEXT COLLATE "C" NOT NULL CHECK (length("key_sha256") = 64),
    "n"                  INTEGER NOT NULL,
    "protocol"           TEXT NOT NULL CHECK (length("protocol") <= 32),
    "operation"          TEXT NOT NULL CHECK (length("operation") <= 128),
    "release"            TEXT NOT NULL CHECK (length("release") <= 64),
    "amount"             BIGINT NOT NULL CHECK ("amount" >= 0),       -- base units of the asset
    "asset"              TEXT NOT NULL CHECK (length("asset") <= 128),
    "network"            TEXT NOT NULL CHECK (length("network") <= 64),
    "recipient"          TEXT CHECK (length("recipient") <= 256),     -- null where schema 1 did not keep it
    "payer"              TEXT CHECK (length("payer") <= 256),
    "transaction"        TEXT NOT NULL CHECK (length("transaction") <= 256),
    "reconciled"         BOOLEAN NOT NULL,                            -- decided by an operator or the chain
    "refunded_at"        DOUBLE PRECISION,
    "refund_transaction" TEXT CHECK (length("refund_transaction") <= 256),
    UNIQUE ("key_sha256", "n")
);

INSERT INTO sales
    ("at", "key_sha256", "n", "protocol", "operation", "release", "amount", "asset", "network", "payer", "transaction", "reconciled")
SELECT "updated_at", encode(sha256(convert_to("key", 'UTF8')), 'hex'), "n", "protocol", "operation", "release", "amount", "asset", "network",
    "payer", "transaction",
    EXISTS (SELECT 1 FROM audit WHERE audit."key" = attempts."key" AND audit."n" = attempts."n" AND audit."what" = 'settled')
FROM attempts WHERE "state" = 'settled' ORDER BY "updated_at";
