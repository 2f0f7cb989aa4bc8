package journal

import (
	"crypto/sha256"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// sum is one link of the chain: SHA-256 over the previous hash, sequence and payload.
func sum(previous []byte, rest string) []byte {
	s := sha256.Sum256(append(append([]byte(nil), previous...), rest...))
	return s[:]
}

// dup is another descriptor of the same open file, as a new image would inherit it.
func dup(t *testing.T, file *os.File) uintptr {
	t.Helper()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return uintptr(fd)
}

// fill appends n records of the given size, in batches.
func fill(t testing.TB, j *Journal, n, size int) {
	t.Helper()
	const batch = 1000
	for done := 0; done < n; done += batch {
		var payloads [][]byte
		for i := done; i < min(n, done+batch); i++ {
			payloads = append(payloads, payload(i+1, size))
		}
		mustAppend(t, j, payloads...)
	}
}
