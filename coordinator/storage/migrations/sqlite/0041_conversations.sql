-- Which Island ran the last job of a conversation is in a file of its own, which storage::counters makes.
SELECT 1;
