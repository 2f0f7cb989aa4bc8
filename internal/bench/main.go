// Command bench measures the built binaries beside the limits of the machine:
// product and limit take turns in one run, and the medians' ratio is what
// counts. Machines are noisy, a number alone says little.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// row compares a rate of the product with the rate of a limit.
type row struct {
	what, unit     string
	product, limit func() (perSecond float64, err error)
	against        string
	goal           float64 // least ratio that is aimed at
}

func main() {
	bin := flag.String("bin", "bin", "folder of the built binaries")
	rounds := flag.Int("rounds", 5, "rounds of each row")
	only := flag.String("only", "", "only rows whose name contains this")
	flag.Parse()
	var err error
	switch flag.Arg(0) { // the other side of a limit
	case "echo":
		echoServer(os.Stdin)
	case "execve":
		err = execve(flag.Arg(1))
	case "small":
		err = writeSmall()
	case "read":
		err = readSmall(flag.Args()[1:])
	default:
		err = run(*bin, *rounds, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(bin string, rounds int, only string) error {
	a, err := startAgent(filepath.Join(bin, "supervisor"))
	if err != nil {
		return err
	}
	defer a.stop()
	idle, err := a.memory()
	if err != nil {
		return err
	}
	silent, err := a.withSilentProcs()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tproduct\tlimit\tratio\tgoal\tagainst")
	for _, r := range a.rows() {
		if !strings.Contains(r.what, only) {
			continue
		}
		if err := r.measure(w, rounds); err != nil {
			return fmt.Errorf("%s: %w", r.what, err)
		}
	}
	binary := filepath.Join(bin, "supervisor")
	if err := measureLoad(w, binary, rounds, only); err != nil {
		return err
	}
	if err := measureHandovers(w, binary, rounds, only); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	info, err := os.Stat(filepath.Join(bin, "supervisor"))
	if err != nil {
		return err
	}
	fmt.Printf("\nidle agent: %s\nwith %d silent processes: %s\nbinary, stripped: %.1f MiB\n",
		idle, silentProcs, silent, float64(info.Size())/(1<<20))
	return nil
}

// measure lets product and limit take turns and prints the medians.
func (r row) measure(w *tabwriter.Writer, rounds int) error {
	var product, limit []float64
	for range rounds {
		p, err := r.product()
		if err != nil {
			return err
		}
		l, err := r.limit()
		if err != nil {
			return fmt.Errorf("the limit: %w", err)
		}
		product, limit = append(product, p), append(limit, l)
	}
	p, l := median(product), median(limit)
	_, err := fmt.Fprintf(w, "%s\t%.0f %s\t%.0f\t%.2f\t%.2f\t%s\n", r.what, p, r.unit, l, p/l, r.goal, r.against)
	return err
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
