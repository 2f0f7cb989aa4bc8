package journal

import (
	"crypto/sha256"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/bbolt"
)

const benchPayload = 200 // bytes, about what an agent's record takes

// Goal: at least half of bare. Only the ratio within one run says anything.
func BenchmarkAppend(b *testing.B) {
	b.Run("64 waiting clients", func(b *testing.B) {
		j := open(b, place(b), Options{MaxBytes: 1 << 30})
		record := payload(1, benchPayload)
		var left atomic.Int64
		left.Store(int64(b.N))
		b.ResetTimer()
		var clients sync.WaitGroup
		for range 64 {
			clients.Go(func() {
				for left.Add(-1) >= 0 {
					if _, err := j.Append(record); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		clients.Wait()
		perSecond(b)
	})
	b.Run("bare bbolt in transactions of 64", func(b *testing.B) {
		db := bareDB(b)
		record := payload(1, benchPayload)
		b.ResetTimer()
		for done := 0; done < b.N; done += 64 {
			putBare(b, db, done, min(64, b.N-done), record)
		}
		perSecond(b)
	})
}

func perSecond(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func bareDB(b *testing.B) *bbolt.DB {
	db, err := bbolt.Open(filepath.Join(b.TempDir(), "bare.db"), 0o600, &bbolt.Options{InitialMmapSize: mapSize})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	return db
}

func putBare(b *testing.B, db *bbolt.DB, after, n int, record []byte) {
	err := db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists([]byte("records"))
		if err != nil {
			return err
		}
		bucket.FillPercent = 1
		for i := range n {
			if err := bucket.Put(key(uint64(after+i+1)), record); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// Goal: at least half of the bare cursor. Each iteration is all of the 200,000 records.
func BenchmarkRead(b *testing.B) {
	const records = 200_000
	b.Run("verify", func(b *testing.B) {
		j := open(b, place(b), Options{MaxBytes: 1 << 30})
		fill(b, j, records, benchPayload)
		for b.Loop() {
			if err := j.Verify(nil); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N*records)/b.Elapsed().Seconds(), "records/s")
	})
	b.Run("bare cursor with SHA-256", func(b *testing.B) {
		db := bareDB(b)
		for done := 0; done < records; done += 1000 {
			putBare(b, db, done, 1000, payload(1, benchPayload+32))
		}
		for b.Loop() {
			sumBare(b, db)
		}
		b.ReportMetric(float64(b.N*records)/b.Elapsed().Seconds(), "records/s")
	})
}

func sumBare(b *testing.B, db *bbolt.DB) {
	var hash [sha256.Size]byte
	sum := sha256.New()
	err := db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte("records")).Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			sum.Reset()
			sum.Write(hash[:])
			sum.Write(k)
			sum.Write(v[sha256.Size:])
			sum.Sum(hash[:0])
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// What Open costs with a journal of the default size: the walk over all pages.
func BenchmarkOpen(b *testing.B) {
	path := place(b)
	j := open(b, path, Options{})
	fill(b, j, 64<<20/benchPayload, benchPayload)
	mustClose(b, j)
	for b.Loop() {
		j, err := Open(path, Options{})
		if err != nil {
			b.Fatal(err)
		}
		mustClose(b, j)
	}
}
