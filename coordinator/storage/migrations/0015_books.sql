-- Books are opened with their account, so that moving money finds them there.
INSERT INTO balances (ledger, amount) SELECT 'account:' || id, 0 FROM accounts WHERE true ON CONFLICT (ledger) DO NOTHING;
INSERT INTO balances (ledger, amount) SELECT 'holds:' || id, 0 FROM accounts WHERE true ON CONFLICT (ledger) DO NOTHING;
INSERT INTO balances (ledger, amount) VALUES ('platform:issue', 0) ON CONFLICT (ledger) DO NOTHING;
