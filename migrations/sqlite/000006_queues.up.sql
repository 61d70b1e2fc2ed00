-- waiting: a JSON array of the places of those who wait for the lock, in their order; NULL if nobody does.
ALTER TABLE locks ADD COLUMN waiting TEXT;
