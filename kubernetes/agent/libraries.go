package main

// The library on the host. The runtime mounts it from there into containers, so it lies in a directory
// of the host's, and outlasts the agent. Each version has a directory that is never changed: programs
// have its files mapped. One that no container has any more is removed.

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

const draftPrefix = "draft-"

type libraries struct {
	// image is the directory of the agent's image, version a name for all that is in it.
	image, version string
	// root is the directory of all versions.
	root string
	// current is the directory of this agent's.
	current string
	// isWhole: all that the image has was found there, or put there.
	isWhole atomic.Bool
}

func newLibraries(image, root string) (*libraries, error) {
	version, err := hashOf(image)
	return &libraries{image: image, version: version, root: root, current: filepath.Join(root, version)}, err
}

// install copies the image's directory to the host, under a name made of all that is in it. What a
// crash of the host left half written is made anew.
func (l *libraries) install() error {
	if found, err := hashOf(l.current); err == nil && found == l.version {
		l.isWhole.Store(true)
		return nil
	}
	l.isWhole.Store(false)
	if err := os.MkdirAll(l.root, 0o755); err != nil {
		return err
	}
	drafts, _ := filepath.Glob(filepath.Join(l.root, draftPrefix+"*"))
	for _, draft := range drafts {
		_ = os.RemoveAll(draft)
	}
	draft, err := os.MkdirTemp(l.root, draftPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(draft)
	if err := copyTree(l.image, draft); err != nil {
		return err
	}
	if err := os.RemoveAll(l.current); err != nil {
		return err
	}
	err = os.Rename(draft, l.current)
	l.isWhole.Store(err == nil)
	return err
}

// isThere holds if a container can be given the library: a mount of what is not there would keep it
// from starting, and a part of it every program in it.
func (l *libraries) isThere() bool {
	stat, err := os.Stat(filepath.Join(l.current, library))
	return err == nil && stat.Mode().IsRegular() && l.isWhole.Load()
}

// removeUnused removes the versions that no container has.
func (l *libraries) removeUnused(used map[string]bool) {
	entries, _ := os.ReadDir(l.root)
	for _, entry := range entries {
		version := filepath.Join(l.root, entry.Name())
		if version == l.current || used[version] || strings.HasPrefix(entry.Name(), draftPrefix) {
			continue
		}
		slog.Info("an unused version of the library is removed", "directory", version)
		_ = os.RemoveAll(version)
	}
}

// hashOf returns a name for all that a directory holds.
func hashOf(directory string) (string, error) {
	sum := sha256.New()
	err := walk(directory, func(path, name string, entry fs.DirEntry) error {
		fmt.Fprintf(sum, "%s\x00%s\x00", name, entry.Type())
		switch {
		case entry.Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			fmt.Fprintf(sum, "%s\x00", to)
			return err
		case entry.Type().IsRegular():
			return readInto(sum, path)
		}
		return nil
	})
	return hex.EncodeToString(sum.Sum(nil)[:16]), err
}

func copyTree(from, to string) error {
	// MkdirTemp's is for its user alone.
	if err := os.Chmod(to, 0o755); err != nil {
		return err
	}
	return walk(from, func(path, name string, entry fs.DirEntry) error {
		at := filepath.Join(to, name)
		switch {
		case entry.IsDir():
			return os.Mkdir(at, 0o755)
		case entry.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, at)
		}
		return copyFile(path, at)
	})
}

func copyFile(from, to string) error {
	stat, err := os.Stat(from)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := readInto(file, from); err != nil {
		return err
	}
	if err := file.Chmod(stat.Mode().Perm()); err != nil {
		return err
	}
	return file.Sync()
}

func readInto(to io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(to, file)
	return err
}

func walk(directory string, each func(path, name string, entry fs.DirEntry) error) error {
	return filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == directory {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil {
			return err
		}
		return each(path, name, entry)
	})
}
