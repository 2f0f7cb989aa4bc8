package engine

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"

	"supervisor/wire"
)

// keyedHash stands for values that must be compared later but not stored: who
// reads a journal cannot try guesses without the key beside it.
type keyedHash []byte

const keyBytes = 32

// loadKey reads the state directory's key, or makes it.
func loadKey(path string) (keyedHash, error) {
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(path)
	}
	if err == nil && len(key) != keyBytes {
		err = fmt.Errorf("%s: %d bytes are no key, want %d", path, len(key), keyBytes)
	}
	return key, err
}

// makeKey writes a new key whole or not at all.
func makeKey(path string) (keyedHash, error) {
	key := make([]byte, keyBytes)
	rand.Read(key) // never fails, see crypto/rand
	temp := path + ".new"
	if err := os.WriteFile(temp, key, 0o600); err != nil {
		return nil, err
	}
	return key, os.Rename(temp, path)
}

// start gives what the journal keeps of a start's idempotency key, and of the
// arguments that a second start with that key must repeat.
func (k keyedHash) start(r wire.StartRequest) (name, args string) {
	if r.Idem == "" {
		return "", ""
	}
	h := hmac.New(sha256.New, k)
	putStrings(h, "name", r.Idem)
	name = digest(h)
	h.Reset()
	putStrings(h, "args", cwd(r), r.Stdin)
	putStrings(h, r.Cmd...)
	putStrings(h, r.Env...)
	fmt.Fprintf(h, "%t %d %d %d", r.PTY, cols(r), rows(r), r.TimeoutMS)
	return name, digest(h)
}

// putStrings hashes a list so that no other list hashes alike.
func putStrings(h hash.Hash, list ...string) {
	length := func(n int) { h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) }
	length(len(list))
	for _, s := range list {
		length(len(s))
		h.Write([]byte(s))
	}
}

// digest is half of the hash in hex: 128 bits name a key well enough.
func digest(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)[:16]) }
