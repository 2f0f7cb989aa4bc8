package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"supervisor/client"
)

// guestSide marks a path of the guest.
const guestSide = "guest:"

func (a *app) cpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy a file into the guest or out of it",
		Long: `Cp copies one file, with its permission bits. One of SRC and DST is guest:PATH, which
is in the guest; the other is a path here, or - for stdin or stdout. A DST that is a
folder takes the file under its own name. A file in the guest is written in place;
one here appears when it is whole.`,
		Example: `  supctl cp app.conf guest:/etc/app.conf
  supctl cp guest:/var/log/app.log .
  tar c src | supctl cp - guest:/tmp/src.tar`,
		Args:              operands("SRC", "DST"),
		ValidArgsFunction: a.completeCopy,
		RunE: func(cmd *cobra.Command, args []string) error {
			from, out := strings.CutPrefix(args[0], guestSide)
			to, in := strings.CutPrefix(args[1], guestSide)
			switch {
			case out == in:
				return usagef("cp: one of SRC and DST must be %sPATH", guestSide)
			case from == "" || to == "":
				return usagef("cp: a path is empty")
			}
			return a.connected(tidily(func(ctx context.Context, c *client.Client, _ []string) error {
				if in {
					return a.copyIn(ctx, c, from, to)
				}
				return a.copyFrom(ctx, c, from, to)
			}))(cmd, args)
		},
	}
}

// copyIn copies a file into the guest.
func (a *app) copyIn(ctx context.Context, c *client.Client, from, to string) error {
	if from == "-" {
		return c.WriteFile(ctx, to, 0, a.stdin)
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a folder: cp copies one file", from)
	}
	if there, err := c.StatFile(ctx, to); err == nil && there.IsDir {
		to = path.Join(to, filepath.Base(from))
	}
	bar := a.progress(f)
	err = c.WriteFile(ctx, to, int(info.Mode().Perm()), bar)
	bar.clear()
	return err
}

// copyFrom copies a file out of the guest.
func (a *app) copyFrom(ctx context.Context, c *client.Client, from, to string) error {
	if to == "-" {
		return c.ReadFile(ctx, from, a.stdout)
	}
	there, err := c.StatFile(ctx, from)
	if err != nil {
		return err
	}
	if there.IsDir {
		return fmt.Errorf("%s%s is a folder: cp copies one file", guestSide, from)
	}
	if here, err := os.Stat(to); err == nil && here.IsDir() {
		to = filepath.Join(to, path.Base(from))
	}
	return whole(to, os.FileMode(there.Mode).Perm(), func(w io.Writer) error { return c.ReadFile(ctx, from, w) })
}

// whole writes a file that appears whole or not at all. What is no regular
// file, like /dev/null, is written as it is.
func whole(name string, mode os.FileMode, write func(io.Writer) error) (err error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		return write(f)
	}
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target // as cp does, which writes through links
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".supctl-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	err = write(f)
	if e := f.Chmod(mode); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
