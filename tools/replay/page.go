package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"strings"
)

// The page is put together from its parts: nothing in it is fetched.
var (
	//go:embed page/page.html
	pageFrame string
	//go:embed page/page.css
	pageStyle string
	//go:embed page/model.js
	pageModel string
	//go:embed page/chart.js
	pageChart string
	//go:embed page/story.js
	pageStory string
	//go:embed page/main.js
	pageMain string
)

// pageJSON is the data of the page. Times are milliseconds after From, which
// is in unix milliseconds.
type pageJSON struct {
	Version string          `json:"version"`
	From    float64         `json:"from"`
	Length  float64         `json:"length"`
	First   uint64          `json:"first_seq"`
	Head    uint64          `json:"head_seq"`
	Agents  []agentLaneJSON `json:"agents"`
	Lanes   []laneJSON      `json:"lanes"`
}

type agentLaneJSON struct {
	agentJSON
	From   float64   `json:"from"`
	To     float64   `json:"to"`
	Images []float64 `json:"images"` // where each generation begins
}

type laneJSON struct {
	From    float64    `json:"from"`
	To      float64    `json:"to"`
	Drained float64    `json:"drained,omitempty"`
	Cut     bool       `json:"cut,omitempty"`
	Look    string     `json:"look"` // a class of the style sheet
	End     string     `json:"end"`
	Command string     `json:"command"`
	Marks   []markJSON `json:"marks,omitempty"`
	Story   *account   `json:"story"`
}

type markJSON struct {
	At   float64 `json:"at"`
	Sign string  `json:"sign"`
}

// writePage writes the scene as one HTML page. The data is JSON in a script
// element that is not run; in it <, > and & are escaped, so nothing that a
// journal holds can end the element.
func (s *scene) writePage(w *bufio.Writer, _ int) error {
	script := strings.Join([]string{pageModel, pageChart, pageStory, pageMain}, "\n")
	frame := strings.NewReplacer("/*style*/", pageStyle, "/*script*/", script).Replace(pageFrame)
	before, after, _ := strings.Cut(frame, "/*data*/")
	w.WriteString(before)
	if err := json.NewEncoder(w).Encode(s.pageJSON()); err != nil {
		return err
	}
	_, err := w.WriteString(after)
	return err
}

func (s *scene) pageJSON() *pageJSON {
	p := &pageJSON{
		Version: version, From: float64(s.from) / 1e6, Length: s.ms(s.to), First: s.first, Head: s.last,
		Agents: []agentLaneJSON{}, Lanes: []laneJSON{},
	}
	for i := range s.agents {
		a := &s.agents[i]
		row := agentLaneJSON{agentJSON: a.json(), From: s.ms(a.from), To: s.ms(a.to)}
		for _, g := range a.generations {
			row.Images = append(row.Images, s.ms(g.from))
		}
		p.Agents = append(p.Agents, row)
	}
	tail := s.tailBytes()
	for _, l := range s.lanes {
		p.Lanes = append(p.Lanes, s.laneJSON(l, tail))
	}
	return p
}

// ms is a place in milliseconds after the first.
func (s *scene) ms(place int64) float64 { return float64(place-s.from) / 1e6 }

// tailBytes is how much of each stream the page holds: all tails together stay
// within what a browser likes.
func (s *scene) tailBytes() int {
	const all, least = 32 << 20, 256
	return max(least, min(laneTail, all/2/max(len(s.lanes), 1)))
}

func (s *scene) laneJSON(l *life, tail int) laneJSON {
	lane := laneJSON{
		From: s.ms(l.from), To: s.ms(s.until(l)), Cut: l.cut, Look: l.look(), End: l.endWords(),
		Command: printable(command(l.Spec.Cmd)), Story: s.account(l),
	}
	if l.drained > s.until(l) {
		lane.Drained = s.ms(l.drained)
	}
	for i := range l.steps {
		if mark := markOf(l.steps[i].event); mark != 0 {
			lane.Marks = append(lane.Marks, markJSON{s.ms(l.steps[i].at), string(mark)})
		}
	}
	if o := lane.Story.Output; o != nil {
		o.Stdout.Tail, o.Stderr.Tail = lastBytes(o.Stdout.Tail, tail), lastBytes(o.Stderr.Tail, tail)
	}
	return lane
}
