DROP TABLE lost;
DROP TABLE witnesses;
DROP TABLE admission;
