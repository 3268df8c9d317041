package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Any pod of the cluster reaches the port, and could keep connections open there without end.
func TestOpenConnectionsTakeNoMoreThanTheirPlaces(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() { _ = newMeters().answer(listener) }()
	address := listener.Addr().String()
	idle := []net.Conn{}
	for range 2 * askers {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		idle = append(idle, connection)
	}
	// They are accepted in order: who is beyond the places hears the end at once.
	for _, connection := range idle[askers:] {
		_ = connection.SetReadDeadline(time.Now().Add(time.Minute))
		if n, err := connection.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Fatalf("%d bytes, %v", n, err)
		} else if timeout, is := err.(net.Error); is && timeout.Timeout() {
			t.Fatal("a connection more than there are places stays open")
		}
	}
	for _, connection := range idle {
		_ = connection.Close()
	}
	// The places are free again: as soon as the server has seen that.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		answer, err := http.Get("http://" + address + "/metrics")
		if err == nil {
			text, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if strings.Contains(string(text), "ginnel_agent_groups") && answer.Close {
				return
			}
			t.Fatalf("%s %v", text, answer.Close)
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
