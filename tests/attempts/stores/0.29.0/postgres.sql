-- The shared store, schema version 1: what is kept of a purchase, and nothing else; schema.sql is the embedded one's.
-- Never a body, a result, a query or document id, a raw credential, a signature, an IP address or a user agent.
-- Every length is bounded, so that a row is. Times are seconds since the epoch by the store's clock.

-- A schema of its own keeps the tables apart from whatever else the database holds.
CREATE SCHEMA ranking_evaluate;
SET search_path = ranking_evaluate;

-- Its one row says which release's tables these are.
CREATE TABLE schema_version ("version" INTEGER NOT NULL);
INSERT INTO schema_version ("version") VALUES (1);

-- One row per (key, n); the columns are the fields of Attempt.
CREATE TABLE attempts (
    "key"               TEXT COLLATE "C" NOT NULL CHECK (length("key") BETWEEN 16 AND 128), -- the Idempotency-Key
    "n"                 INTEGER NOT NULL CHECK ("n" >= 1),            -- counts the attempts under the key, purged ones too
    "claim"             TEXT COLLATE "C" NOT NULL UNIQUE CHECK (length("claim") <= 64), -- who holds it owns the row
    "state"             TEXT NOT NULL
        CHECK ("state" IN ('reserved', 'settling', 'uncertain', 'settled', 'failed', 'released')),
    "lease"             DOUBLE PRECISION,                             -- reserved, settling: until when the owner has it
    "protocol"          TEXT NOT NULL CHECK (length("protocol") <= 32),
    "operation"         TEXT NOT NULL CHECK (length("operation") <= 128),
    "release"           TEXT NOT NULL CHECK (length("release") <= 64),
    "fingerprint"       TEXT NOT NULL CHECK (length("fingerprint") = 64),       -- SHA-256 of what is bought
    "credential_digest" TEXT NOT NULL CHECK (length("credential_digest") = 64), -- SHA-256 of the decoded credential
    "output_sha256"     TEXT NOT NULL CHECK (length("output_sha256") = 64),     -- what every replay must recompute
    "amount"            BIGINT NOT NULL CHECK ("amount" >= 0),        -- base units of the asset
    "asset"             TEXT NOT NULL CHECK (length("asset") <= 128),
    "network"           TEXT NOT NULL CHECK (length("network") <= 64),
    "payer"             TEXT CHECK (length("payer") <= 256),
    "payment_id"        TEXT NOT NULL CHECK (length("payment_id") <= 512), -- x402: the nonce; MPP: the challenge id
    "valid_before"      BIGINT,                                       -- after it the credential moves no money any more
    "transaction"       TEXT CHECK (length("transaction") <= 256),
    "reason"            TEXT CHECK (length("reason") <= 500),         -- why failed, released or uncertain
    "receipt"           TEXT CHECK (length("receipt") <= 131072),     -- the receipt header of every 200, byte for byte
    "created_at"        DOUBLE PRECISION NOT NULL,
    "updated_at"        DOUBLE PRECISION NOT NULL,
    "expires_at"        DOUBLE PRECISION,                             -- settled, failed, released: end of the window
    PRIMARY KEY ("key", "n")
);

-- What the purge and the operator look for: ended attempts by the end of their window, open ones by state.
CREATE INDEX attempts_ended ON attempts ("expires_at") WHERE "expires_at" IS NOT NULL;
CREATE INDEX attempts_open ON attempts ("state", "lease") WHERE "expires_at" IS NULL;

-- What may be used once, ever. A proof outlives its attempt; only a reservation that came to nothing gives it back.
CREATE TABLE proofs (
    "proof"      BYTEA NOT NULL PRIMARY KEY CHECK (length("proof") = 32),
    "key"        TEXT COLLATE "C" NOT NULL,
    "n"          INTEGER NOT NULL,
    "claim"      TEXT COLLATE "C" NOT NULL,
    "last_state" TEXT CHECK ("last_state" IN ('settled', 'failed', 'released')) -- set when the attempt is purged
);

CREATE INDEX proofs_by_key ON proofs ("key");

-- Decisions that the table of moves left to somebody; "id" keeps the order of two in the same instant.
CREATE TABLE audit (
    "id"       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    "at"       DOUBLE PRECISION NOT NULL,
    "key"      TEXT COLLATE "C" NOT NULL,
    "n"        INTEGER NOT NULL,
    "who"      TEXT NOT NULL CHECK (length("who") <= 256),
    "what"     TEXT NOT NULL CHECK (length("what") <= 256),
    "evidence" TEXT NOT NULL CHECK (length("evidence") <= 4096)
);

CREATE INDEX audit_by_key ON audit ("key");

INSERT INTO attempts ("key", "n", "claim", "state", "lease", "protocol", "operation", "release", "fingerprint", "credential_digest", "output_sha256", "amount", "asset", "network", "payer", "payment_id", "valid_before", "transaction", "reason", "receipt", "created_at", "updated_at", "expires_at") VALUES ('sold_by_0_29_0_over', 1, '3ed701257d7a766eb311de921d38906c', 'settled', NULL, 'x402', 'ranking-evaluate', '0.29.0', '75a9c59d90d9c5dec2474a743e17a2de4ea122b862856e8607b6827d43448b9e', '5a840adaeed78d35b3d0a12ec5c4e541fc4a3dc7ae367196b2874cef2548fbda', 'f095dfefc3a8450caae6be870e3bcec5ed671cdab8f82efc1ba93e39d6834147', 10000, '0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f', 'eip155:31337', '0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a', '0xa0398e1ac789f0d81613d8716b62f6a610fd8c39cc4596cdc4317d59deafe415', 1799913700, '0xd53fa919f171e8c95e2e981932d9d91f5df2b5ec5bcc5951c5bef290dd920633', NULL, 'eyJzdWNjZXNzIjogdHJ1ZSwgInBheWVyIjogIjB4MWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYSIsICJ0cmFuc2FjdGlvbiI6ICIweGQ1M2ZhOTE5ZjE3MWU4Yzk1ZTJlOTgxOTMyZDlkOTFmNWRmMmI1ZWM1YmNjNTk1MWM1YmVmMjkwZGQ5MjA2MzMiLCAibmV0d29yayI6ICJlaXAxNTU6MzEzMzcifQ==', 1799913600.0, 1799913600.0, 1800000000.0);
INSERT INTO attempts ("key", "n", "claim", "state", "lease", "protocol", "operation", "release", "fingerprint", "credential_digest", "output_sha256", "amount", "asset", "network", "payer", "payment_id", "valid_before", "transaction", "reason", "receipt", "created_at", "updated_at", "expires_at") VALUES ('sold_by_0_29_0_settled', 1, '66dccf47bd8b000020b8c9cd57c72255', 'settled', NULL, 'x402', 'ranking-evaluate', '0.29.0', '6063bc66d42b91c75da31eeb2d04b0410129555f7d6f91696dd38dbf01f795ab', 'b05d40e45e84dd70afdaca8c54fc1cb97b5aab61b5fc2ab5e55b51c5c66abf8a', 'a5bf434b48c0bd668fe00819a76684b48ce316471d60ae563d4f014a086b72d8', 10000, '0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f', 'eip155:31337', '0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a', '0x8b6eadffe0b7757fd3ef4c544548deea3853979b7217d28ace026c6b7e5709d6', 1800000100, '0x1b617280ff04dc346373e5538835f2808c4e02d8e2b4d87b2aee9e7875725818', NULL, 'eyJzdWNjZXNzIjogdHJ1ZSwgInBheWVyIjogIjB4MWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYSIsICJ0cmFuc2FjdGlvbiI6ICIweDFiNjE3MjgwZmYwNGRjMzQ2MzczZTU1Mzg4MzVmMjgwOGM0ZTAyZDhlMmI0ZDg3YjJhZWU5ZTc4NzU3MjU4MTgiLCAibmV0d29yayI6ICJlaXAxNTU6MzEzMzcifQ==', 1800000000.0, 1800000000.0, 1800086400.0);
INSERT INTO attempts ("key", "n", "claim", "state", "lease", "protocol", "operation", "release", "fingerprint", "credential_digest", "output_sha256", "amount", "asset", "network", "payer", "payment_id", "valid_before", "transaction", "reason", "receipt", "created_at", "updated_at", "expires_at") VALUES ('sold_by_0_29_0_failed', 1, 'd96c4e583ab925d299fe9d2a6c7a0ce1', 'failed', NULL, 'x402', 'ranking-evaluate', '0.29.0', '6063bc66d42b91c75da31eeb2d04b0410129555f7d6f91696dd38dbf01f795ab', '31ccc39383b943c639036b179d7ac623cbc3f29ec688efe97852e0970d31260d', 'a5bf434b48c0bd668fe00819a76684b48ce316471d60ae563d4f014a086b72d8', 10000, '0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f', 'eip155:31337', '0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a', '0x2102ffba0e0f08331f317c72747222fa10aea12b96b62d38e2e6146ff8dbbcc8', 1800000100, NULL, 'the wallet holds less than the price', 'eyJzdWNjZXNzIjogZmFsc2UsICJlcnJvclJlYXNvbiI6ICJ0aGUgd2FsbGV0IGhvbGRzIGxlc3MgdGhhbiB0aGUgcHJpY2UiLCAicGF5ZXIiOiAiMHgxYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhIiwgInRyYW5zYWN0aW9uIjogIiIsICJuZXR3b3JrIjogImVpcDE1NTozMTMzNyJ9', 1800000000.0, 1800000000.0, 1800086400.0);
INSERT INTO attempts ("key", "n", "claim", "state", "lease", "protocol", "operation", "release", "fingerprint", "credential_digest", "output_sha256", "amount", "asset", "network", "payer", "payment_id", "valid_before", "transaction", "reason", "receipt", "created_at", "updated_at", "expires_at") VALUES ('sold_by_0_29_0_uncertain', 1, '5fe6427f35a61aeb13bfd81783205ad3', 'uncertain', NULL, 'x402', 'ranking-evaluate', '0.29.0', '6063bc66d42b91c75da31eeb2d04b0410129555f7d6f91696dd38dbf01f795ab', 'e03e0fcbeb3d32321330a2337445233b47832f8f05288a2e52c041cfcf637e6c', 'a5bf434b48c0bd668fe00819a76684b48ce316471d60ae563d4f014a086b72d8', 10000, '0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f', 'eip155:31337', '0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a', '0xd1a07668b7329dac228aefcab3940cafe9f9069090080486be5a473209592b8b', 1800000100, NULL, 'the facilitator answered status 500 without a definite outcome', NULL, 1800000000.0, 1800000000.0, NULL);
INSERT INTO attempts ("key", "n", "claim", "state", "lease", "protocol", "operation", "release", "fingerprint", "credential_digest", "output_sha256", "amount", "asset", "network", "payer", "payment_id", "valid_before", "transaction", "reason", "receipt", "created_at", "updated_at", "expires_at") VALUES ('sold_by_0_29_0_released', 1, '1a36353c3d4a840eb5f98c498d07caa3', 'released', NULL, 'x402', 'ranking-evaluate', '0.29.0', '628e7e4f9187c5e6826494d820f1024ea116375b6664e0c9bca68d4bbb04fee3', '16325e771206ae53c18f9aebce01b6f84fe5e26d46ece82b81e1e9df3cadb96d', 'f0c3089f5dbb46abf0f4504af00efdc4a4c01a90cd15f0dca87307f45cb9fe16', 10000, '0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f', 'eip155:31337', '0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a', '0xaf1e81ac1d69246cc054624cb80a3d47ac460b8328f31fc0e17f4838f19e99d1', 1800000100, NULL, 'released by an operator', NULL, 1800000000.0, 1800000000.0, 1800086400.0);
INSERT INTO attempts ("key", "n", "claim", "state", "lease", "protocol", "operation", "release", "fingerprint", "credential_digest", "output_sha256", "amount", "asset", "network", "payer", "payment_id", "valid_before", "transaction", "reason", "receipt", "created_at", "updated_at", "expires_at") VALUES ('sold_by_0_29_0_reconciled', 1, 'db78746453a26540da687f7cc4f29cb8', 'settled', NULL, 'x402', 'ranking-evaluate', '0.29.0', '628e7e4f9187c5e6826494d820f1024ea116375b6664e0c9bca68d4bbb04fee3', '36465fb307e0a97e5e1fa8d6906585c93a8cdb7e17455f19333dbfd09f6984ca', 'f0c3089f5dbb46abf0f4504af00efdc4a4c01a90cd15f0dca87307f45cb9fe16', 10000, '0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f', 'eip155:31337', '0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a', '0xd63427693b8668f5e4b53ec9b988f578952a05846131c8246d3b98c0572c9d4e', 1800000100, '0xa6b5422aa50481205a2dfb7dce9f49ff8d735fd1e31cfb3b62890ebcd950d121', NULL, 'eyJzdWNjZXNzIjogdHJ1ZSwgInBheWVyIjogIjB4MWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYSIsICJ0cmFuc2FjdGlvbiI6ICIweGE2YjU0MjJhYTUwNDgxMjA1YTJkZmI3ZGNlOWY0OWZmOGQ3MzVmZDFlMzFjZmIzYjYyODkwZWJjZDk1MGQxMjEiLCAibmV0d29yayI6ICJlaXAxNTU6MzEzMzciLCAiZXh0cmEiOiB7InJlY29uY2lsZWQiOiB0cnVlfX0=', 1800000000.0, 1800000000.0, 1800086400.0);
INSERT INTO attempts ("key", "n", "claim", "state", "lease", "protocol", "operation", "release", "fingerprint", "credential_digest", "output_sha256", "amount", "asset", "network", "payer", "payment_id", "valid_before", "transaction", "reason", "receipt", "created_at", "updated_at", "expires_at") VALUES ('sold_by_0_29_0_reserved', 1, '51f6a3f435ef3cbe3f0aa7464d5733db', 'reserved', 1800000050.0, 'x402', 'ranking-evaluate', '0.29.0', '6063bc66d42b91c75da31eeb2d04b0410129555f7d6f91696dd38dbf01f795ab', 'ef53bd301394fe22b5f1a8f4cf7129e83882ea553a91c51bc66b05f7f4536036', 'a5bf434b48c0bd668fe00819a76684b48ce316471d60ae563d4f014a086b72d8', 10000, '0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f', 'eip155:31337', '0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a', '0xcfaeb9c16d5e9f4cd0c14b9666453db55b3a29a5ecc6ad788995b465628a2ad2', 1800000100, NULL, NULL, NULL, 1800000000.0, 1800000000.0, NULL);
INSERT INTO attempts ("key", "n", "claim", "state", "lease", "protocol", "operation", "release", "fingerprint", "credential_digest", "output_sha256", "amount", "asset", "network", "payer", "payment_id", "valid_before", "transaction", "reason", "receipt", "created_at", "updated_at", "expires_at") VALUES ('sold_by_0_29_0_settling', 1, '2a902cd7627ff4c810b1f146c2582e7b', 'settling', 1800000100.0, 'x402', 'ranking-evaluate', '0.29.0', '6063bc66d42b91c75da31eeb2d04b0410129555f7d6f91696dd38dbf01f795ab', '7d69f37dcd779f469f19b6bce9fba329d522280413c95c243adb18405c14b5c0', 'a5bf434b48c0bd668fe00819a76684b48ce316471d60ae563d4f014a086b72d8', 10000, '0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f', 'eip155:31337', '0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a', '0x501a329ec9a533d9bc18f9c6818130e5e4196419d9d526bb048308f0be41c0e3', 1800000100, NULL, NULL, NULL, 1800000000.0, 1800000000.0, NULL);
INSERT INTO proofs ("proof", "key", "n", "claim", "last_state") VALUES ('\x30a67ec5714e72b4f26bc3b03040dc865200ebd46aedbc7ded65013fcf751de5', 'sold_by_0_29_0_purged_settled', 1, 'c30668ee8e1e00e2b9f344ad77f25e8d', 'settled');
INSERT INTO proofs ("proof", "key", "n", "claim", "last_state") VALUES ('\x2e7151a9d54acb1213a02c3c815a7ce6452356d4e8351cf1a19e7dd764db0df4', 'sold_by_0_29_0_purged_failed', 1, '548d11153b49028a50faa7b061b2ab42', 'failed');
INSERT INTO proofs ("proof", "key", "n", "claim", "last_state") VALUES ('\x5eb603b8b4d4a144dfb2fff6d621b44c31b8f90119f2f199f04efc8717206af9', 'sold_by_0_29_0_over', 1, '3ed701257d7a766eb311de921d38906c', NULL);
INSERT INTO proofs ("proof", "key", "n", "claim", "last_state") VALUES ('\x6f0569a261e08b492f5d36db4228090126db03fac2059ac54916a8e773c24b7f', 'sold_by_0_29_0_settled', 1, '66dccf47bd8b000020b8c9cd57c72255', NULL);
INSERT INTO proofs ("proof", "key", "n", "claim", "last_state") VALUES ('\xfb971af9813b7fb1062041333f924a5ffe6c47d2ca83727de01c4575c1900c61', 'sold_by_0_29_0_failed', 1, 'd96c4e583ab925d299fe9d2a6c7a0ce1', NULL);
INSERT INTO proofs ("proof", "key", "n", "claim", "last_state") VALUES ('\x347536dc8da5e4352bcb24625d0c06760a3cf481c6e172570ce2669e41816cbc', 'sold_by_0_29_0_uncertain', 1, '5fe6427f35a61aeb13bfd81783205ad3', NULL);
INSERT INTO proofs ("proof", "key", "n", "claim", "last_state") VALUES ('\xde0ab65b0acaa7f64dc09cedc41d08a88a0eb933c0f86a8163debc1f7f768fe1', 'sold_by_0_29_0_released', 1, '1a36353c3d4a840eb5f98c498d07caa3', NULL);
INSERT INTO proofs ("proof", "key", "n", "claim", "last_state") VALUES ('\x4ff40f3de834e0f4d4ea1d1554962fc4434d941afd4f9486836da720d6bbd361', 'sold_by_0_29_0_reconciled', 1, 'db78746453a26540da687f7cc4f29cb8', NULL);
INSERT INTO proofs ("proof", "key", "n", "claim", "last_state") VALUES ('\x8d7d131d3993609ae3e8a2bb67510ea3fb5a56efa1ca9bb8c2d08b17be0a4620', 'sold_by_0_29_0_reserved', 1, '51f6a3f435ef3cbe3f0aa7464d5733db', NULL);
INSERT INTO proofs ("proof", "key", "n", "claim", "last_state") VALUES ('\x307a2df319ad67420c3c1a3e3f1e62f4f55e2c08c00edf28fbb4bed61c408fc1', 'sold_by_0_29_0_settling', 1, '2a902cd7627ff4c810b1f146c2582e7b', NULL);
INSERT INTO audit ("at", "key", "n", "who", "what", "evidence") VALUES (1800000000.0, 'sold_by_0_29_0_released', 1, 'ada@fixture', 'released', 'forced; chain: unknown: X402_RPC_URL is not set');
INSERT INTO audit ("at", "key", "n", "who", "what", "evidence") VALUES (1800000000.0, 'sold_by_0_29_0_reconciled', 1, 'ada@fixture', 'settled', 'forced; chain: unknown: X402_RPC_URL is not set');
