ALTER TABLE admission DROP COLUMN policy_since;
ALTER TABLE admission DROP COLUMN policy;
ALTER TABLE witnesses DROP COLUMN word;
