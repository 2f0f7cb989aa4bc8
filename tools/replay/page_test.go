package main

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"supervisor/journal"
)

// page writes the page of a story. It is kept with go test -artifacts.
func page(t *testing.T, s *story) (name, content string) {
	t.Helper()
	path := place(t)
	write(t, path, journal.Options{}, s.payloads())
	name = filepath.Join(t.ArtifactDir(), "timeline.html")
	if _, stderr, code := invoke("timeline", path, "--format", "html", "-o", name); code != exitOK || stderr != "" {
		t.Fatalf("exit %d, %q", code, stderr)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return name, string(b)
}

// The page refers to nothing outside, and nothing of the journal ends the
// element that it is in.
func TestPageIsSelfContained(t *testing.T) {
	_, content := page(t, crowd(60))
	if found := regexp.MustCompile(`(?i)(src|href|action)\s*=\s*"?(https?:|//)|@import|url\(|fetch\(|import\(`).FindString(content); found != "" {
		t.Errorf("it refers to something: %q", found)
	}
	if n := strings.Count(strings.ToLower(content), "</script"); n != 2 {
		t.Errorf("%d script elements end, want those of the data and of the code", n)
	}
	for _, bad := range []string{"\u2028", "\u2029", "\x1b", "\x00", "<img"} {
		if strings.Contains(content, bad) {
			t.Errorf("it holds a raw %q", bad)
		}
	}
}

// seen is what the page's check says that it saw.
type seen struct {
	Processes, Lanes, Agents, Rows, Found, Printed int
	Zoomed, Fitted, Dragged                        bool
	Painted, Story, Closed, Empty, Stepped         bool
	Paper                                          string
	FrameMS                                        float64 `json:"frame_ms"`
	Problems                                       []string
}

// A browser draws the page, and it does what it is told.
func TestPageInABrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	for _, c := range []struct {
		name     string
		story    *story
		n, lanes int
	}{
		{"none", newStory(), 0, 0},
		{"a busy day", busyDay(), 5, 5},
		{"5", crowd(5), 5, 5},
		{"500", crowd(500), 500, 20},
		{"10000", crowd(10_000), 10_000, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			name, _ := page(t, c.story)
			got := look(t, browser, name)
			if len(got.Problems) > 0 || !got.Zoomed || !got.Fitted || !got.Dragged || got.Printed != c.n {
				t.Errorf("%+v", got)
			}
			if got.Processes != c.n || got.Lanes < c.lanes || got.Rows < c.n {
				t.Errorf("%d processes, %d lanes drawn, %d rows: %+v", c.n, got.Lanes, got.Rows, got)
			}
			if c.n > 0 && (got.Agents == 0 || got.Found != 1 || !got.Painted || !got.Story || !got.Closed || !got.Empty || !got.Stepped) {
				t.Errorf("%+v", got)
			}
			t.Logf("a frame takes %.1f ms", got.FrameMS)
		})
	}
}

// The page is dark where the person likes it so.
func TestPageInTheDark(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	name, _ := page(t, crowd(5))
	for scheme, paper := range map[string]string{"0": "rgb(20, 24, 29)", "1": "rgb(255, 255, 255)"} {
		got := look(t, browser, name, "--blink-settings=preferredColorScheme="+scheme)
		if got.Paper != paper || !got.Painted {
			t.Errorf("%+v", got)
		}
	}
}

// look opens a page in a browser without a window, and returns what its check
// left in the document.
func look(t *testing.T, browser, name string, flags ...string) (got seen) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, append(flags, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-background-networking", "--user-data-dir="+t.TempDir(), "--enable-logging=stderr",
		"--window-size=1400,800", "--virtual-time-budget=5000", "--dump-dom", "file://"+name+"#check")...)
	var log strings.Builder
	cmd.Stderr = &log
	dom, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	if found := regexp.MustCompile(`.*(CONSOLE|Uncaught).*`).FindString(log.String()); found != "" {
		t.Errorf("the browser's console: %s", found)
	}
	check := regexp.MustCompile(`(?s)<pre id="check"[^>]*>(.*?)</pre>`).FindSubmatch(dom)
	if check == nil {
		t.Fatal("the page was not drawn")
	}
	if err := json.Unmarshal([]byte(html.UnescapeString(string(check[1]))), &got); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, check[1]))
	}
	return got
}
