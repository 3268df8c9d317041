package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"
)

// handler answers with what its request asks for, and the sum of what that had.
func handler() http.Handler {
	all := http.NewServeMux()
	all.HandleFunc("/sum", func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		seed, _ := strconv.ParseInt(r.URL.Query().Get("seed"), 10, 64)
		wanted, _ := strconv.Atoi(r.URL.Query().Get("size"))
		w.Header().Set("Sum", fmt.Sprintf("%x", sha256.Sum256(got)))
		w.Header().Set("Trailer", "Last")
		answer := random(s0(seed), wanted)
		for len(answer) > 5000 {
			w.Write(answer[:5000])
			w.(http.Flusher).Flush()
			answer = answer[5000:]
		}
		w.Write(answer)
		w.Header().Set("Last", "words")
	})
	all.HandleFunc("/never", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("begun"))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	all.HandleFunc("/end", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("begun"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	return all
}

// asks: some clients at once, each with requests in turn; their answers in the clients' order.
func asks(s *scene, client *http.Client, url string, clients int) {
	said := make([]*scene, clients)
	var all sync.WaitGroup
	for i := range said {
		one := &scene{Rand: s.part(), name: fmt.Sprintf("%s %d", s.name, i)}
		said[i] = one
		all.Add(1)
		go func() {
			defer all.Done()
			for rounds := 1 + one.Intn(12); rounds > 0; rounds-- {
				ask(one, client, url)
			}
		}()
	}
	all.Wait()
	for _, one := range said {
		s.said.Write(one.said.Bytes())
	}
}

func ask(s *scene, client *http.Client, url string) {
	switch s.Intn(12) {
	case 0:
		never(s, client, url)
		return
	case 1:
		response, err := client.Get(url + "/end")
		if err != nil {
			s.say("aborted before its answer")
			return
		}
		_, err = io.ReadAll(response.Body)
		response.Body.Close()
		s.say("aborted: %v", err != nil)
		return
	}
	sent, seed, wanted := random(s.Rand, size(s.Rand)/4), s.Int63(), size(s.Rand)/4
	var body io.Reader = bytes.NewReader(sent)
	if s.Intn(2) == 0 {
		// Of a length that nobody knows.
		body = struct{ io.Reader }{body}
	}
	request, err := http.NewRequest("POST", fmt.Sprintf("%s/sum?seed=%d&size=%d", url, seed, wanted), body)
	must(err)
	if s.Intn(3) == 0 {
		request.Header.Set("Expect", "100-continue")
	}
	response, err := client.Do(request)
	if err != nil {
		s.say("failed: %v", err)
		return
	}
	got, err := io.ReadAll(response.Body)
	response.Body.Close()
	right := response.Header.Get("Sum") == fmt.Sprintf("%x", sha256.Sum256(sent))
	s.say("%s %d: %d sent, as it was: %v; %d came, %s, as it was: %v, %v", response.Proto, response.StatusCode, len(sent), right,
		len(got), word(err), bytes.Equal(got, random(s0(seed), wanted)), response.Trailer["Last"])
}

// never: an answer that does not end is given up.
func never(s *scene, client *http.Client, url string) {
	patience, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(patience, "GET", url+"/never", nil)
	must(err)
	response, err := client.Do(request)
	must(err)
	begun := make([]byte, 5)
	_, err = io.ReadFull(response.Body, begun)
	cancel()
	_, ended := response.Body.Read(begun)
	response.Body.Close()
	s.say("%s %s, %v", begun, word(err), ended != nil)
}

// quiet: what a server says of connections that its clients give up is nobody's answer.
func quiet(server *httptest.Server) {
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
}

func web(s *scene) {
	server := httptest.NewUnstartedServer(handler())
	quiet(server)
	server.Start()
	transport := &http.Transport{MaxIdleConnsPerHost: 1 + s.Intn(8)}
	asks(s, &http.Client{Transport: transport, Timeout: 50 * time.Second}, server.URL, 1+s.Intn(8))
	transport.CloseIdleConnections()
	server.Close()
}

// web2: HTTP/2 over TLS, many streams on one connection.
func web2(s *scene) {
	server := httptest.NewUnstartedServer(handler())
	quiet(server)
	server.EnableHTTP2 = true
	server.StartTLS()
	client := server.Client()
	asks(s, client, server.URL, 1+s.Intn(30))
	client.CloseIdleConnections()
	server.Close()
}

// hijack: a connection that was HTTP's is the program's own.
func hijack(s *scene) {
	taken := make(chan *net.TCPConn, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Path != "/take" {
			w.Write([]byte("kept"))
			return
		}
		c, _, err := w.(http.Hijacker).Hijack()
		must(err)
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		taken <- c.(*net.TCPConn)
	}))
	quiet(server)
	server.Start()
	c, err := net.Dial("tcp4", server.Listener.Addr().String())
	must(err)
	a := c.(*net.TCPConn)
	for i := s.Intn(15); i > 0; i-- {
		fmt.Fprint(a, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
		s.say("answer: %s", answer(a, "kept"))
	}
	fmt.Fprint(a, "GET /take HTTP/1.1\r\nHost: x\r\n\r\n")
	s.say("answer: %s", answer(a, "\r\n\r\n"))
	b := <-taken
	for i := 1 + s.Intn(8); i > 0; i-- {
		both(s, a, b)
	}
	halves(s, a, b)
	a.Close()
	b.Close()
	server.Close()
}

// answer is the first line of what comes, up to its end.
func answer(c net.Conn, end string) string {
	var all []byte
	one := make([]byte, 1)
	for !bytes.HasSuffix(all, []byte(end)) {
		if _, err := c.Read(one); err != nil {
			return word(err)
		}
		all = append(all, one[0])
	}
	return string(bytes.SplitN(all, []byte("\r\n"), 2)[0])
}
