-- word: when another site began to testify about this site. The word counts while it is later than seen: programs of version 11 leave it as it is.
ALTER TABLE witnesses ADD COLUMN IF NOT EXISTS word TIMESTAMP;

-- For which sites a new server waits, and since when. NULL: for every site.
ALTER TABLE admission ADD COLUMN IF NOT EXISTS policy STRING(16);
ALTER TABLE admission ADD COLUMN IF NOT EXISTS policy_since TIMESTAMP;
