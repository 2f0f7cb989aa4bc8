#!/usr/bin/env python3
"""Verifies the hash chain of a journal without any code of this project:

    replay events --raw JOURNAL | docs/verify.py

Compare the head with one that was kept elsewhere: a chain cannot show that its
end was cut off."""
import base64, hashlib, json, sys

first, seq, head = None, 0, bytes(32)
for line in sys.stdin:
    record = json.loads(line)
    if "payload" not in record:  # a link: what comes before is not printed
        seq, head = record["seq"], bytes.fromhex(record["hash"])
        continue
    seq, first = seq + 1, first or record["seq"]
    stored = base64.b64decode(record["payload"], validate=True)
    head = hashlib.sha256(head + seq.to_bytes(8, "big") + stored).digest()
    if record["seq"] != seq or record["hash"] != head.hex():
        sys.exit(f"record {seq}: is missing or was altered")
print(f"ok: records {first}..{seq}, head {head.hex()}" if first else f"ok: no records, head {head.hex()}")
