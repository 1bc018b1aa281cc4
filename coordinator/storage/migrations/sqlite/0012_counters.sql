-- What counts against the limits lies in a file of its own, which storage::counters makes.
SELECT 1;
