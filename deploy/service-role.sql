-- The service's role: it owns its database, and is nothing else here. PostgreSQL's image runs this once, when its volume
-- is empty; elsewhere an administrator may:
--   SERVICE_PASSWORD_FILE=FILE psql -v ON_ERROR_STOP=1 -U postgres -f deploy/service-role.sql
\set ON_ERROR_STOP on
\set password `cat "$SERVICE_PASSWORD_FILE"`
-- An empty password would make a role that nobody can be: stop before anything is made.
SELECT 1 / length(:'password') AS "the password is there";

CREATE ROLE ranking_evaluate LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS
    CONNECTION LIMIT 64 PASSWORD :'password';
-- From template0, since a template may have another encoding.
CREATE DATABASE ranking_evaluate OWNER ranking_evaluate TEMPLATE template0 ENCODING 'UTF8';
REVOKE ALL ON DATABASE ranking_evaluate, postgres, template1 FROM PUBLIC;
