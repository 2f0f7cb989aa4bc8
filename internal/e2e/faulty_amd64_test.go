package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"supervisor/statemachine"
)

// Whatever system call of an upgrade fails, it is made, or rejected, or rolled
// back, and answered; the journal tells which. The agent has every process
// afterwards, and nothing is left of the attempt.
func TestUpgradeMeetsFaults(t *testing.T) {
	a := install(t, swift(t, "1"), "--max-procs", "500")
	c := &faulty{caravan: newCaravan(a)}
	c.company = newCompany(a)
	a.upgrade(c.other()) // so that there is a previous image
	c.company.thrives()
	c.open = c.settled()
	outcomes := map[string]int{}
	meet := func(p point) (met bool) {
		outcome := c.attempt(p)
		outcomes[outcome]++
		return outcome != ""
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if slices.Contains(infallible, kind) {
			continue
		}
		for _, after := range []string{"", "unlinkat", "exec"} {
			meet(point{after, kind, 1})
		}
	}
	for n := 1; *many && meet(point{"", "fallible", n}); n++ {
	}
	t.Log(outcomes)
	for _, kind := range ends {
		if outcomes[string(kind)] == 0 {
			t.Errorf("no fault led to %s", kind)
		}
	}
}

// ends are the records that tell how an upgrade ended.
var ends = []statemachine.Kind{statemachine.KindUpgradeRejected, statemachine.KindUpgradeAdopted, statemachine.KindUpgradeRolledBack}

// faulty is an agent whose upgrades meet faults.
type faulty struct {
	*caravan
	company *company
	open    int // descriptors at first: what is not needed may fail to open
}

// attempt upgrades while a call fails. The outcome is "" if none did, else the
// kind of the record that tells how it ended.
func (c *faulty) attempt(p point) (outcome string) {
	t := c.t
	t.Helper()
	c.before, c.company.before = c.pids(), c.pids()
	beside := c.beside()
	journal, err := c.JournalInfo(c.context(20 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	img, conn := c.other(), c.raw().conn
	staged := c.stage(img)
	m := c.meddle(p, unix.EIO)
	fmt.Fprintf(conn, `{"op":"agent_upgrade","path":%q,"sha256":%q}`+"\n", staged, img.sha256)
	answer := answered(conn)
	outcome = c.outcome(journal.HeadSeq)
	met := m.end(t)
	t.Logf("%s: %v: %s", met, answer, outcome)
	c.isWhole()
	c.company.thrives()
	if now := c.beside(); answer["ok"] != true && !slices.Equal(now, beside) && !slices.Equal(now, beside[:1]) { // an older image may be gone
		t.Errorf("%s: beside the installed image are %v, were %v", met, now, beside)
	}
	if _, err := os.Stat(staged); answer["ok"] == false && err != nil {
		t.Errorf("%s: the staged file: %v", met, err)
	}
	eventually(t, "as many descriptors as before", func() bool { return c.settled() <= c.open })
	if met == "" {
		return ""
	}
	return outcome
}

// answered is the reply that comes, nil if none does.
func answered(conn net.Conn) (m reply) {
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if json.NewDecoder(conn).Decode(&m) != nil {
		return nil
	}
	return m
}

// outcome waits for the record that ends an upgrade.
func (c *faulty) outcome(after uint64) (kind string) {
	c.t.Helper()
	eventually(c.t, "an outcome", func() bool {
		err := c.eachRecord(func(r record) {
			if r.Seq > after && slices.Contains(ends, r.Kind) {
				kind = string(r.Kind)
			}
		})
		return err == nil && kind != ""
	})
	return kind
}
