-- A part of the fingerprint from here on; null in rows that were written before, whose fingerprint is without it.
ALTER TABLE attempts ADD COLUMN "schema_sha256" TEXT CHECK (length("schema_sha256") = 64); -- of result schema and conventions
