-- Nonces lie in the file of the counters, which storage::counters makes.
SELECT 1;
