PRAGMA application_id = 1380011595;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE attempts (
    "key"               TEXT    NOT NULL CHECK (length("key") BETWEEN 16 AND 128), -- the caller's Idempotency-Key
    "n"                 INTEGER NOT NULL CHECK ("n" >= 1),             -- counts the attempts under the key, purged ones too
    "claim"             TEXT    NOT NULL UNIQUE CHECK (length("claim") <= 64), -- random; who holds it owns the row
    "state"             TEXT    NOT NULL
        CHECK ("state" IN ('reserved', 'settling', 'uncertain', 'settled', 'failed', 'released')),
    "lease"             REAL,                                          -- reserved, settling: until when the owner has it
    "protocol"          TEXT    NOT NULL CHECK (length("protocol") <= 32),
    "operation"         TEXT    NOT NULL CHECK (length("operation") <= 128),
    "release"           TEXT    NOT NULL CHECK (length("release") <= 64),
    "fingerprint"       TEXT    NOT NULL CHECK (length("fingerprint") = 64),       -- SHA-256 of what is bought
    "credential_digest" TEXT    NOT NULL CHECK (length("credential_digest") = 64), -- SHA-256 of the decoded credential
    "output_sha256"     TEXT    NOT NULL CHECK (length("output_sha256") = 64),     -- what every replay must recompute
    "amount"            INTEGER NOT NULL CHECK ("amount" >= 0),        -- base units of the asset
    "asset"             TEXT    NOT NULL CHECK (length("asset") <= 128),
    "network"           TEXT    NOT NULL CHECK (length("network") <= 64),
    "payer"             TEXT    CHECK (length("payer") <= 256),
    "payment_id"        TEXT    NOT NULL CHECK (length("payment_id") <= 512), -- x402: the nonce; MPP: the challenge id
    "valid_before"      INTEGER,                                       -- after it the credential moves no money any more
    "transaction"       TEXT    CHECK (length("transaction") <= 256),
    "reason"            TEXT    CHECK (length("reason") <= 500),       -- why failed, released or uncertain
    "receipt"           TEXT    CHECK (length("receipt") <= 131072),   -- the receipt header of every 200, byte for byte
    "created_at"        REAL    NOT NULL,
    "updated_at"        REAL    NOT NULL,
    "expires_at"        REAL,                                          -- settled, failed, released: end of the window
    PRIMARY KEY ("key", "n")
);
INSERT INTO "attempts" VALUES('sold_by_0_29_0_over',1,'11833873b7955da3d3003c68cf64aba0','settled',NULL,'x402','ranking-evaluate','0.29.0','75a9c59d90d9c5dec2474a743e17a2de4ea122b862856e8607b6827d43448b9e','5a840adaeed78d35b3d0a12ec5c4e541fc4a3dc7ae367196b2874cef2548fbda','f095dfefc3a8450caae6be870e3bcec5ed671cdab8f82efc1ba93e39d6834147',10000,'0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f','eip155:31337','0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a','0xa0398e1ac789f0d81613d8716b62f6a610fd8c39cc4596cdc4317d59deafe415',1799913700,'0xd53fa919f171e8c95e2e981932d9d91f5df2b5ec5bcc5951c5bef290dd920633',NULL,'eyJzdWNjZXNzIjogdHJ1ZSwgInBheWVyIjogIjB4MWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYSIsICJ0cmFuc2FjdGlvbiI6ICIweGQ1M2ZhOTE5ZjE3MWU4Yzk1ZTJlOTgxOTMyZDlkOTFmNWRmMmI1ZWM1YmNjNTk1MWM1YmVmMjkwZGQ5MjA2MzMiLCAibmV0d29yayI6ICJlaXAxNTU6MzEzMzcifQ==',1799913600.0,1799913600.0,1800000000.0);
INSERT INTO "attempts" VALUES('sold_by_0_29_0_settled',1,'5eb6a733fb9163a0e4800be85769b4c1','settled',NULL,'x402','ranking-evaluate','0.29.0','6063bc66d42b91c75da31eeb2d04b0410129555f7d6f91696dd38dbf01f795ab','b05d40e45e84dd70afdaca8c54fc1cb97b5aab61b5fc2ab5e55b51c5c66abf8a','a5bf434b48c0bd668fe00819a76684b48ce316471d60ae563d4f014a086b72d8',10000,'0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f','eip155:31337','0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a','0x8b6eadffe0b7757fd3ef4c544548deea3853979b7217d28ace026c6b7e5709d6',1800000100,'0x1b617280ff04dc346373e5538835f2808c4e02d8e2b4d87b2aee9e7875725818',NULL,'eyJzdWNjZXNzIjogdHJ1ZSwgInBheWVyIjogIjB4MWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYSIsICJ0cmFuc2FjdGlvbiI6ICIweDFiNjE3MjgwZmYwNGRjMzQ2MzczZTU1Mzg4MzVmMjgwOGM0ZTAyZDhlMmI0ZDg3YjJhZWU5ZTc4NzU3MjU4MTgiLCAibmV0d29yayI6ICJlaXAxNTU6MzEzMzcifQ==',1800000000.0,1800000000.0,1800086400.0);
INSERT INTO "attempts" VALUES('sold_by_0_29_0_failed',1,'919a29a49419a613eff6265cb6bc9d1d','failed',NULL,'x402','ranking-evaluate','0.29.0','6063bc66d42b91c75da31eeb2d04b0410129555f7d6f91696dd38dbf01f795ab','31ccc39383b943c639036b179d7ac623cbc3f29ec688efe97852e0970d31260d','a5bf434b48c0bd668fe00819a76684b48ce316471d60ae563d4f014a086b72d8',10000,'0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f','eip155:31337','0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a','0x2102ffba0e0f08331f317c72747222fa10aea12b96b62d38e2e6146ff8dbbcc8',1800000100,NULL,'the wallet holds less than the price','eyJzdWNjZXNzIjogZmFsc2UsICJlcnJvclJlYXNvbiI6ICJ0aGUgd2FsbGV0IGhvbGRzIGxlc3MgdGhhbiB0aGUgcHJpY2UiLCAicGF5ZXIiOiAiMHgxYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhIiwgInRyYW5zYWN0aW9uIjogIiIsICJuZXR3b3JrIjogImVpcDE1NTozMTMzNyJ9',1800000000.0,1800000000.0,1800086400.0);
INSERT INTO "attempts" VALUES('sold_by_0_29_0_uncertain',1,'1e090b96b3b7ed01928802462689ff82','uncertain',NULL,'x402','ranking-evaluate','0.29.0','6063bc66d42b91c75da31eeb2d04b0410129555f7d6f91696dd38dbf01f795ab','e03e0fcbeb3d32321330a2337445233b47832f8f05288a2e52c041cfcf637e6c','a5bf434b48c0bd668fe00819a76684b48ce316471d60ae563d4f014a086b72d8',10000,'0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f','eip155:31337','0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a','0xd1a07668b7329dac228aefcab3940cafe9f9069090080486be5a473209592b8b',1800000100,NULL,'the facilitator answered status 500 without a definite outcome',NULL,1800000000.0,1800000000.0,NULL);
INSERT INTO "attempts" VALUES('sold_by_0_29_0_released',1,'0dfd0aa4dc80a5fd21b88f384a824f3f','released',NULL,'x402','ranking-evaluate','0.29.0','628e7e4f9187c5e6826494d820f1024ea116375b6664e0c9bca68d4bbb04fee3','16325e771206ae53c18f9aebce01b6f84fe5e26d46ece82b81e1e9df3cadb96d','f0c3089f5dbb46abf0f4504af00efdc4a4c01a90cd15f0dca87307f45cb9fe16',10000,'0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f','eip155:31337','0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a','0xaf1e81ac1d69246cc054624cb80a3d47ac460b8328f31fc0e17f4838f19e99d1',1800000100,NULL,'released by an operator',NULL,1800000000.0,1800000000.0,1800086400.0);
INSERT INTO "attempts" VALUES('sold_by_0_29_0_reconciled',1,'1d4fcdec5d40bdb1e740a93e50d4d188','settled',NULL,'x402','ranking-evaluate','0.29.0','628e7e4f9187c5e6826494d820f1024ea116375b6664e0c9bca68d4bbb04fee3','36465fb307e0a97e5e1fa8d6906585c93a8cdb7e17455f19333dbfd09f6984ca','f0c3089f5dbb46abf0f4504af00efdc4a4c01a90cd15f0dca87307f45cb9fe16',10000,'0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f','eip155:31337','0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a','0xd63427693b8668f5e4b53ec9b988f578952a05846131c8246d3b98c0572c9d4e',1800000100,'0xa6b5422aa50481205a2dfb7dce9f49ff8d735fd1e31cfb3b62890ebcd950d121',NULL,'eyJzdWNjZXNzIjogdHJ1ZSwgInBheWVyIjogIjB4MWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYTFhMWExYSIsICJ0cmFuc2FjdGlvbiI6ICIweGE2YjU0MjJhYTUwNDgxMjA1YTJkZmI3ZGNlOWY0OWZmOGQ3MzVmZDFlMzFjZmIzYjYyODkwZWJjZDk1MGQxMjEiLCAibmV0d29yayI6ICJlaXAxNTU6MzEzMzciLCAiZXh0cmEiOiB7InJlY29uY2lsZWQiOiB0cnVlfX0=',1800000000.0,1800000000.0,1800086400.0);
INSERT INTO "attempts" VALUES('sold_by_0_29_0_reserved',1,'337a649d69167cac9607548a5c7c7216','reserved',1800000050.0,'x402','ranking-evaluate','0.29.0','6063bc66d42b91c75da31eeb2d04b0410129555f7d6f91696dd38dbf01f795ab','ef53bd301394fe22b5f1a8f4cf7129e83882ea553a91c51bc66b05f7f4536036','a5bf434b48c0bd668fe00819a76684b48ce316471d60ae563d4f014a086b72d8',10000,'0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f','eip155:31337','0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a','0xcfaeb9c16d5e9f4cd0c14b9666453db55b3a29a5ecc6ad788995b465628a2ad2',1800000100,NULL,NULL,NULL,1800000000.0,1800000000.0,NULL);
INSERT INTO "attempts" VALUES('sold_by_0_29_0_settling',1,'799f8565a908960e25f21def9d57bed5','settling',1800000100.0,'x402','ranking-evaluate','0.29.0','6063bc66d42b91c75da31eeb2d04b0410129555f7d6f91696dd38dbf01f795ab','7d69f37dcd779f469f19b6bce9fba329d522280413c95c243adb18405c14b5c0','a5bf434b48c0bd668fe00819a76684b48ce316471d60ae563d4f014a086b72d8',10000,'0x5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f5f','eip155:31337','0x1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a','0x501a329ec9a533d9bc18f9c6818130e5e4196419d9d526bb048308f0be41c0e3',1800000100,NULL,NULL,NULL,1800000000.0,1800000000.0,NULL);
CREATE TABLE audit (
    "at"       REAL    NOT NULL,
    "key"      TEXT    NOT NULL,
    "n"        INTEGER NOT NULL,
    "who"      TEXT    NOT NULL CHECK (length("who") <= 256),
    "what"     TEXT    NOT NULL CHECK (length("what") <= 256),
    "evidence" TEXT    NOT NULL CHECK (length("evidence") <= 4096)
);
INSERT INTO "audit" VALUES(1800000000.0,'sold_by_0_29_0_released',1,'ada@fixture','released','forced; chain: unknown: X402_RPC_URL is not set');
INSERT INTO "audit" VALUES(1800000000.0,'sold_by_0_29_0_reconciled',1,'ada@fixture','settled','forced; chain: unknown: X402_RPC_URL is not set');
CREATE TABLE proofs (
    "proof"      BLOB    NOT NULL PRIMARY KEY CHECK (length("proof") = 32),
    "key"        TEXT    NOT NULL,
    "n"          INTEGER NOT NULL,
    "claim"      TEXT    NOT NULL,
    "last_state" TEXT    CHECK ("last_state" IN ('settled', 'failed', 'released')) -- set when the attempt is purged
) WITHOUT ROWID;
INSERT INTO "proofs" VALUES(X'2E7151A9D54ACB1213A02C3C815A7CE6452356D4E8351CF1A19E7DD764DB0DF4','sold_by_0_29_0_purged_failed',1,'244e1d4eb5063bde6380a684e67270f2','failed');
INSERT INTO "proofs" VALUES(X'307A2DF319AD67420C3C1A3E3F1E62F4F55E2C08C00EDF28FBB4BED61C408FC1','sold_by_0_29_0_settling',1,'799f8565a908960e25f21def9d57bed5',NULL);
INSERT INTO "proofs" VALUES(X'30A67EC5714E72B4F26BC3B03040DC865200EBD46AEDBC7DED65013FCF751DE5','sold_by_0_29_0_purged_settled',1,'1b21211bebe466eea04271aa859d498f','settled');
INSERT INTO "proofs" VALUES(X'347536DC8DA5E4352BCB24625D0C06760A3CF481C6E172570CE2669E41816CBC','sold_by_0_29_0_uncertain',1,'1e090b96b3b7ed01928802462689ff82',NULL);
INSERT INTO "proofs" VALUES(X'4FF40F3DE834E0F4D4EA1D1554962FC4434D941AFD4F9486836DA720D6BBD361','sold_by_0_29_0_reconciled',1,'1d4fcdec5d40bdb1e740a93e50d4d188',NULL);
INSERT INTO "proofs" VALUES(X'5EB603B8B4D4A144DFB2FFF6D621B44C31B8F90119F2F199F04EFC8717206AF9','sold_by_0_29_0_over',1,'11833873b7955da3d3003c68cf64aba0',NULL);
INSERT INTO "proofs" VALUES(X'6F0569A261E08B492F5D36DB4228090126DB03FAC2059AC54916A8E773C24B7F','sold_by_0_29_0_settled',1,'5eb6a733fb9163a0e4800be85769b4c1',NULL);
INSERT INTO "proofs" VALUES(X'8D7D131D3993609AE3E8A2BB67510EA3FB5A56EFA1CA9BB8C2D08B17BE0A4620','sold_by_0_29_0_reserved',1,'337a649d69167cac9607548a5c7c7216',NULL);
INSERT INTO "proofs" VALUES(X'DE0AB65B0ACAA7F64DC09CEDC41D08A88A0EB933C0F86A8163DEBC1F7F768FE1','sold_by_0_29_0_released',1,'0dfd0aa4dc80a5fd21b88f384a824f3f',NULL);
INSERT INTO "proofs" VALUES(X'FB971AF9813B7FB1062041333F924A5FFE6C47D2CA83727DE01C4575C1900C61','sold_by_0_29_0_failed',1,'919a29a49419a613eff6265cb6bc9d1d',NULL);
CREATE INDEX attempts_ended ON attempts ("expires_at") WHERE "expires_at" IS NOT NULL;
CREATE INDEX attempts_open ON attempts ("state", "lease") WHERE "expires_at" IS NULL;
CREATE INDEX proofs_by_key ON proofs ("key");
CREATE INDEX audit_by_key ON audit ("key");
COMMIT;
