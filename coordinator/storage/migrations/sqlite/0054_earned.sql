-- What an account earned, for payouts: its entries are found without those of all jobs.
CREATE INDEX ledger_earned ON ledger_entries (ledger, created_at) WHERE kind = 'settle';
