package client

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// upgradable plays an agent that is upgraded.
type upgradable struct {
	t      *testing.T
	mu     sync.Mutex
	files  map[string][]byte
	sha256 string // of the running image
	reject bool
	back   bool // the new image gives up
}

func (u *upgradable) answer(p *fakePeer, r object) object {
	u.mu.Lock()
	defer u.mu.Unlock()
	path, _ := r["path"].(string)
	switch r["op"] {
	case "agent_info":
		return object{"agent_version": "v" + u.sha256[:4], "image_sha256": u.sha256, "caps": []string{"upgrade", "proc"}}
	case "journal_info":
		return object{"head_seq": 7}
	case "journal_read":
		if r.offset("after_seq") != 7 {
			u.t.Errorf("read after %v", r["after_seq"])
		}
		return object{"records": []object{{"seq": 8, "kind": "upgrade.rolled_back", "data": object{"error": "no room"}}}, "head_seq": 8, "first_seq": 1}
	case "write_file":
		if r["append"] != true {
			u.files[path] = nil
		}
		u.files[path] = append(u.files[path], decode(u.t, r["data"])...)
	case "exec":
		cmd := r["cmd"].([]any)
		delete(u.files, cmd[len(cmd)-1].(string))
		return object{"exit_code": 0, "stdout": "", "stderr": ""}
	case "agent_upgrade":
		sum := sha256.Sum256(u.files[path])
		if u.reject || r["sha256"] != hex.EncodeToString(sum[:]) {
			return object{"error": "not an agent", "code": "upgrade_rejected"}
		}
		delete(u.files, path)
		if !u.back {
			u.sha256 = hex.EncodeToString(sum[:])
		}
		time.AfterFunc(10*time.Millisecond, func() { p.Close() })
	}
	return object{}
}

func newUpgradable(t *testing.T) (*upgradable, *fakeAgent) {
	u := &upgradable{t: t, files: map[string][]byte{}, sha256: strings.Repeat("0", 64)}
	return u, newFakeAgent(t, true, u.answer)
}

func TestUpgrade(t *testing.T) {
	u, f := newUpgradable(t)
	image := bytes.Repeat([]byte("image"), filePiece/2) // of several pieces
	before, after, err := f.dial().Upgrade(within(t, 20*time.Second), Upgrade{Image: bytes.NewReader(image)})
	sum := sha256.Sum256(image)
	if err != nil || before.AgentVersion != "v0000" || after.ImageSHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("%+v to %+v, %v", before, after, err)
	}
	if len(u.files) != 0 {
		t.Error("something is left")
	}
}

// Whatever fails, nothing stays in the guest, and the reason is told.
func TestUpgradeFails(t *testing.T) {
	broken := errors.New("disk on fire")
	for name, test := range map[string]struct {
		set   func(*upgradable)
		image io.Reader
		want  string
	}{
		"rejected":     {func(u *upgradable) { u.reject = true }, strings.NewReader("image"), "not an agent"},
		"rolled back":  {func(u *upgradable) { u.back = true }, strings.NewReader("image"), "the agent is still v0000: upgrade.rolled back: no room"},
		"not readable": {func(*upgradable) {}, io.MultiReader(strings.NewReader("im"), iotest.ErrReader(broken)), broken.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			u, f := newUpgradable(t)
			test.set(u)
			_, _, err := f.dial().Upgrade(within(t, 20*time.Second), Upgrade{Image: test.image})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			if len(u.files) != 0 {
				t.Error("something is left")
			}
		})
	}
}

// An agent without the verbs is too old, which is no failure of it.
func TestUpgradeOfAnOldAgent(t *testing.T) {
	f := newFakeAgent(t, false, func(_ *fakePeer, r object) object {
		return object{"error": "unknown op: " + r["op"].(string)}
	})
	_, _, err := f.dial().Upgrade(within(t, 20*time.Second), Upgrade{Image: strings.NewReader("image")})
	if !errors.Is(err, ErrTooOld) {
		t.Errorf("%v, want ErrTooOld", err)
	}
}

// An older agent's own sentence about a file is told as it is.
func TestFileErrors(t *testing.T) {
	f := newFakeAgent(t, false, func(*fakePeer, object) object { return object{"error": "open /x: no such file or directory"} })
	c, ctx := f.dial(), within(t, 20*time.Second)
	for name, err := range map[string]error{
		"ReadFile": c.ReadFile(ctx, "/x", io.Discard), "WriteFile": c.WriteFile(ctx, "/x", 0, strings.NewReader("")),
	} {
		if err == nil || err.Error() != "open /x: no such file or directory" || errors.Is(err, ErrTooOld) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
