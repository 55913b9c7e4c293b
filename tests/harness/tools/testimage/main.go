// Package main is the one program of the test image: what a test wants to know from inside a container, and nothing
// that needs a shell or a library. It answers to the names it is linked to (hold, view, env, ls, stat, cat, fetch, …) or
// takes the name as its first argument.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// view is all of a container that tests compare with what its claims grant.
type view struct {
	Environment map[string]string `json:"environment"`
	Devices     []entry           `json:"devices"`
	Mounts      []mount           `json:"mounts"`
}

// entry is one file as stat(2) and open(2) see it.
type entry struct {
	Path string `json:"path"`
	// Kind is character, block, directory, link, fifo, socket or file.
	Kind  string `json:"kind"`
	Mode  string `json:"mode"`
	Size  int64  `json:"size"`
	Major uint64 `json:"major"`
	Minor uint64 `json:"minor"`
	// Target is where a link points to.
	Target string `json:"target,omitempty"`
	// OpenError is why the file cannot be opened for reading; empty where it can.
	OpenError string `json:"openError,omitempty"`
}

// mount is one line of /proc/self/mountinfo, as far as tests look at it.
type mount struct {
	Root    string `json:"root"`
	Path    string `json:"path"`
	Options string `json:"options"`
	Type    string `json:"type"`
	Source  string `json:"source"`
}

func main() {
	name, arguments := filepath.Base(os.Args[0]), os.Args[1:]
	if _, known := commands[name]; !known && len(arguments) > 0 {
		name, arguments = arguments[0], arguments[1:]
	}
	command, known := commands[name]
	if !known {
		fail("unknown command %q: it is one of %s", name, strings.Join(names(), ", "))
	}
	if err := command(arguments); err != nil {
		fail("%s: %v", name, err)
	}
}

var commands map[string]func([]string) error

func init() {
	commands = map[string]func([]string) error{
		"hold":  hold,
		"view":  showView,
		"env":   showEnvironment,
		"ls":    list,
		"stat":  showEntries,
		"cat":   show,
		"echo":  func(words []string) error { _, err := fmt.Println(strings.Join(words, " ")); return err },
		"sleep": sleep,
		"write": write,
		"fetch": fetch,
		"true":  func([]string) error { return nil },
		"false": func([]string) error { os.Exit(1); return nil },
	}
}

func names() []string {
	var all []string
	for name := range commands {
		all = append(all, name)
	}
	sort.Strings(all)
	return all
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, "testimage: "+format+"\n", values...)
	os.Exit(2)
}

// hold waits for TERM or INT. With a command as arguments, that runs first: "hold view" prints and stays.
func hold(arguments []string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	if len(arguments) > 0 {
		command, known := commands[arguments[0]]
		if !known {
			return fmt.Errorf("unknown command %q", arguments[0])
		}
		if err := command(arguments[1:]); err != nil {
			return err
		}
	}
	<-stop
	return nil
}

func environment() map[string]string {
	all := map[string]string{}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		all[name] = value
	}
	return all
}

func printJSON(value any) error {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// showEnvironment prints the environment. With arguments it is env(1): NAME=VALUE sets a variable, -u NAME takes one away,
// and what follows is run with that.
func showEnvironment(arguments []string) error {
	if len(arguments) == 0 {
		return printJSON(environment())
	}
	variables := environment()
	for len(arguments) > 0 {
		name, value, isSet := strings.Cut(arguments[0], "=")
		if arguments[0] == "-u" && len(arguments) > 1 {
			delete(variables, arguments[1])
			arguments = arguments[2:]
		} else if isSet {
			variables[name] = value
			arguments = arguments[1:]
		} else {
			break
		}
	}
	if len(arguments) == 0 {
		return printJSON(variables)
	}
	pairs := []string{}
	for name, value := range variables {
		pairs = append(pairs, name+"="+value)
	}
	return &os.PathError{Op: "exec", Path: arguments[0], Err: syscall.Exec(arguments[0], arguments, pairs)}
}

func showView([]string) error {
	devices, err := below("/dev")
	if err != nil {
		return err
	}
	mounts, err := mounts()
	if err != nil {
		return err
	}
	return printJSON(view{Environment: environment(), Devices: devices, Mounts: mounts})
}

func list(roots []string) error {
	if len(roots) == 0 {
		roots = []string{"/dev"}
	}
	all := []entry{}
	for _, root := range roots {
		entries, err := below(root)
		if err != nil {
			return err
		}
		all = append(all, entries...)
	}
	return printJSON(all)
}

func showEntries(paths []string) error {
	all := []entry{}
	for _, path := range paths {
		e, err := read(path)
		if err != nil {
			return err
		}
		all = append(all, e)
	}
	return printJSON(all)
}

// below lists all files under root that are not directories; one that goes away while it looks is left out.
func below(root string) ([]entry, error) {
	all := []entry{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return nil
		}
		e, err := read(path)
		if os.IsNotExist(err) {
			return nil
		}
		all = append(all, e)
		return err
	})
	return all, err
}

func read(path string) (entry, error) {
	var s syscall.Stat_t
	if err := syscall.Lstat(path, &s); err != nil {
		return entry{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	kinds := map[uint32]string{
		syscall.S_IFCHR: "character", syscall.S_IFBLK: "block", syscall.S_IFDIR: "directory",
		syscall.S_IFLNK: "link", syscall.S_IFIFO: "fifo", syscall.S_IFSOCK: "socket", syscall.S_IFREG: "file",
	}
	device := uint64(s.Rdev)
	e := entry{
		Path: path, Kind: kinds[s.Mode&syscall.S_IFMT], Mode: fmt.Sprintf("%04o", s.Mode&0o7777), Size: s.Size,
		Major: (device>>8)&0xfff | (device>>32)&^uint64(0xfff),
		Minor: device&0xff | (device>>12)&^uint64(0xff),
	}
	switch e.Kind {
	case "link":
		e.Target, _ = os.Readlink(path)
	case "character", "block", "file":
		file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
		if err != nil {
			e.OpenError = err.(*os.PathError).Err.Error()
		} else {
			file.Close()
		}
	}
	return e, nil
}

func mounts() ([]mount, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	all := []mount{}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		before, after, found := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !found || len(left) < 6 || len(right) < 2 {
			return nil, fmt.Errorf("unexpected line in /proc/self/mountinfo: %q", line)
		}
		all = append(all, mount{Root: left[3], Path: left[4], Options: left[5], Type: right[0], Source: right[1]})
	}
	return all, nil
}

func show(paths []string) error {
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, file)
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// write puts its words, and a newline, into the file named first.
func write(arguments []string) error {
	if len(arguments) < 1 {
		return fmt.Errorf("needs a path")
	}
	return os.WriteFile(arguments[0], []byte(strings.Join(arguments[1:], " ")+"\n"), 0o644)
}

// serviceAccount is where the kubelet puts what a pod needs to speak with the API server.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

// fetch prints what GET on each URL answers; with the pod's own authority and token where it has them. Another status
// than 200 is an error.
func fetch(urls []string) error {
	transport := &http.Transport{}
	if authority, err := os.ReadFile(serviceAccount + "ca.crt"); err == nil {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(authority)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	token, _ := os.ReadFile(serviceAccount + "token")
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	for _, url := range urls {
		request, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if len(token) > 0 {
			request.Header.Set("Authorization", "Bearer "+string(token))
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s: %s", url, answer.Status, body)
		}
		os.Stdout.Write(body)
	}
	return nil
}

func sleep(arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("needs a number of seconds")
	}
	seconds, err := strconv.ParseFloat(arguments[0], 64)
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-stop:
	case <-time.After(time.Duration(seconds * float64(time.Second))):
	}
	return nil
}
