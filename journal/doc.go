/*
Package journal keeps opaque records in one file: numbered 1, 2, 3… without holes, chained by hashes, and durable when
Append returns. It does not know what a record means. One process writes (Lock, Open); others read copies (OpenReadOnly).

# Format

The file is a bbolt database (file format 2, pages of 4096 bytes). All numbers are big-endian, so that keys sort by number.

	meta/format         "supervisor journal"
	meta/version        uint32, now 1
	meta/created        RFC 3339, for people
	meta/base           uint64 seq, hash[32]: the newest record that was pruned; absent while none was
	segments/<seq>/     a bucket for each run of records, named by its first sequence number (uint64);
	                    the bucket's own bbolt sequence is the sum of its payload lengths
	segments/<seq>/<n>  hash[32], payload: record n
	snapshots/<seq>     uint32 version, hash[32] of record seq, digest[32], blob; see WriteSnapshot for how many stay
	                    digest = SHA-256(seq, version, hash, blob)

# Chain

hash(n) = SHA-256(hash(n-1), n as 8 bytes big-endian, payload(n)), and hash(0) is 32 zero bytes. After pruning the chain
starts from meta/base. All that a verifier needs, given the records in order and the base:

	seq, hash := base.Seq, base.Hash // 0 and zeros if nothing was pruned
	for _, r := range records {
		sum := sha256.New()
		sum.Write(hash[:])
		sum.Write(binary.BigEndian.AppendUint64(nil, seq+1))
		sum.Write(r.Payload)
		if seq++; r.Seq != seq || !bytes.Equal(sum.Sum(nil), r.Hash[:]) {
			return fmt.Errorf("record %d is not what was written", seq)
		}
		hash = r.Hash
	}

The chain shows a record that was changed, removed or put in, unless all that follow were computed anew, and it does not
show that the newest records were cut off. Against both, keep heads (Head) elsewhere: a head that is not on the chain
proves that history was rewritten.

# Commits

One goroutine, the committer, writes. While it syncs, the next callers of Append queue up; then it stores all of them in one
transaction and answers them. A commit is bbolt's: new pages are written beside the old ones and synced, then one of the
two meta pages is written, which makes them count, and synced. Head and Read show nothing before that second sync.

What is there after a crash of the process or a power cut, by the moment at which it happened:

  - before the meta page is on the disk: none of the batch. The pages written are free, and used again.
  - while it is written: if it is torn its checksum is wrong, the other meta page counts, and none of the batch is there.
  - after it, before Append returned: all of the batch, although nobody was told so.
  - after Append returned: all of the batch.
  - while a snapshot is stored: the older snapshots and nothing pruned, or the new one and all that it pruned.
  - while the file is created: no file, or a whole empty journal (and perhaps a path.new, which the next Open replaces).

In mode Batch the last 20 ms (while the disk is full: all that was accepted before) can be lost, and the rest holds. In mode
Off that holds for a crash of the process alone: a power cut can damage the file.

# Errors

A full disk or quota fails a write of a page, before the meta page: nothing was committed, ErrFull, and the next Append
tries again. After any other failed write, and after every failed sync, it is unknown what is on the disk, and the kernel may
report a second sync as good although pages were dropped. So that error is final (ErrFailed, Err): the Journal commits nothing
more, reads go on up to Head, and the next Open checks what is there; it finds all that was acknowledged, and perhaps the
batch that was not. A file that was deleted is such an error too, before anything is written to it.

bbolt trusts its file: some that were cut short make it panic, and it reads through a mapping, where a missing page is a
SIGBUS. Therefore Open reads the meta pages and the length itself, walks all pages in use (about 35 ms for a journal of
64 MiB in the page cache), and checks the link of the newest record, before the first write. The walk sees every page that
is lost, misplaced or cut; it does not hash. Changed bytes within a record are found by Read, which checks the links of what
it returns, and by Verify. Panics and memory faults in bbolt are caught and become ErrDamaged, final like ErrFailed. A
file that is refused is never changed; SetAside renames it.

# Size

A WriteSnapshot prunes: whole segments behind it go while more than MaxBytes are retained, each by deleting its bucket. The
pages are used again, so the file stays near the most that was ever retained, two snapshots, and a quarter of MaxBytes for
older ones: with 200-byte records, 3 MB for a MaxBytes of 1 MiB; 4 MB if snapshots are nearly as large. It never shrinks.
Without snapshots it grows without bound. Limits: 32 MiB a payload, 64 MiB an Append, 256 MiB a snapshot. A reader never
makes the writer wait while the file is below 256 MiB.

# What is assumed of the disk

That fdatasync(2) returns when data, and a changed file length, would survive a power cut (ext4, XFS, btrfs and tmpfs as far
as it goes; Linux 5.10 or later); that a rename followed by an fsync of the folder does; that a page once synced keeps its
content, of which the hashes are the check; that flock(2) and shared mappings work, which rules out some network file
systems. A 4096-byte write need not be atomic.
*/
package journal
