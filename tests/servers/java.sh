#!/bin/sh
# Java: a server on one selector (java.nio), direct and heap buffers, gathering writes and files by transferTo; clients on blocking channels, on sockets
# and on java.net.http, in another process. Every byte is checked.
. "${0%/*}/lib.sh"
needs java javac
version java -version
port=$(port)
web=$(port)
mkdir "$TMPDIR/classes"
head -c 3000000 /dev/urandom >"$TMPDIR/file"
cat >"$TMPDIR/Server.java" <<'J'
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.nio.file.*;
import java.util.concurrent.Executors;

/** A request is a kind and a length. 'e': so many bytes follow, and are echoed; 'f': the file is sent, so many bytes of it. */
class Server {
    static FileChannel file;

    static class Connection {
        final SocketChannel channel;
        final ByteBuffer head = ByteBuffer.allocate(5), body = ByteBuffer.allocateDirect(70000);
        long toRead, toSend, at;
        ByteBuffer[] echo;

        Connection(SocketChannel channel) { this.channel = channel; }

        /** What is to be waited for next; 0: it has ended. */
        int step() throws IOException {
            while (true) {
                if (echo != null) {
                    channel.write(echo);
                    if (echo[0].hasRemaining() || echo[1].hasRemaining()) return SelectionKey.OP_WRITE;
                    echo = null;
                    body.clear();
                } else if (toSend > 0) {
                    long n = file.transferTo(at, toSend, channel);
                    if (n == 0) return SelectionKey.OP_WRITE;
                    at += n;
                    toSend -= n;
                } else if (toRead > 0) {
                    body.limit((int) Math.min(body.capacity(), toRead));
                    int n = channel.read(body);
                    if (n < 0) throw new IOException("ended within a request");
                    if (n == 0) return SelectionKey.OP_READ;
                    toRead -= n;
                    ByteBuffer all = body.duplicate().flip(), first = all.duplicate().limit(all.limit() / 3);
                    all.position(all.limit() / 3);
                    echo = new ByteBuffer[] { first, all };
                } else {
                    int n = channel.read(head);
                    if (n < 0) return 0;
                    if (head.hasRemaining()) return SelectionKey.OP_READ;
                    head.flip();
                    if (head.get() == 'e') toRead = head.getInt();
                    else { at = 0; toSend = head.getInt(); }
                    head.clear();
                }
            }
        }
    }

    public static void main(String[] args) throws Exception {
        file = FileChannel.open(Path.of(args[2]), StandardOpenOption.READ);
        HttpServer web = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[1])), 128);
        web.setExecutor(Executors.newFixedThreadPool(4));
        web.createContext("/", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(200, body.length == 0 ? -1 : body.length);
            if (body.length > 0) exchange.getResponseBody().write(body);
            exchange.close();
        });
        web.start();
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 128).configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (key.isAcceptable()) {
                    SocketChannel channel = listener.accept();
                    if (channel == null) continue;
                    channel.configureBlocking(false);
                    channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
                    channel.register(selector, SelectionKey.OP_READ, new Connection(channel));
                } else {
                    int wanted = ((Connection) key.attachment()).step();
                    if (wanted == 0) key.channel().close(); else key.interestOps(wanted);
                }
            }
            selector.selectedKeys().clear();
        }
    }
}
J
cat >"$TMPDIR/Client.java" <<'J'
import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;

class Client {
    static final long[] rounds = new long[24];
    static int port, web;
    static long end;
    static byte[] file;

    static ByteBuffer head(char kind, int length) { return ByteBuffer.allocate(5).put((byte) kind).putInt(length).flip(); }

    static void check(boolean holds, String what) { if (!holds) { System.out.println("FAILED: " + what); System.exit(1); } }

    static byte[] some(int most) {
        byte[] bytes = new byte[1 + ThreadLocalRandom.current().nextInt(most)];
        ThreadLocalRandom.current().nextBytes(bytes);
        return bytes;
    }

    /** A blocking channel; another thread sends what this one reads back. */
    static void channel(int number) throws Exception {
        try (SocketChannel channel = SocketChannel.open(new InetSocketAddress("127.0.0.1", port))) {
            for (int i = 0; i < 30 && System.nanoTime() < end; i++) {
                byte[] sent = i % 2 == 0 ? some(200) : some(400000);
                ByteBuffer[] parts = { head('e', sent.length), ByteBuffer.wrap(sent) };
                Future<?> sending = ForkJoinPool.commonPool().submit(() -> { while (parts[1].hasRemaining()) channel.write(parts); return null; });
                ByteBuffer got = ByteBuffer.allocateDirect(sent.length);
                while (got.hasRemaining()) check(channel.read(got) >= 0, "ended early");
                sending.get(30, TimeUnit.SECONDS);
                check(got.flip().equals(ByteBuffer.wrap(sent)), "another echo");
                rounds[number]++;
            }
        }
    }

    /** A socket with streams and a time limit; the file, and an end of file. */
    static void socket(int number) throws Exception {
        try (Socket socket = new Socket("127.0.0.1", port)) {
            socket.setSoTimeout(30000);
            socket.setTcpNoDelay(true);
            InputStream in = socket.getInputStream();
            OutputStream out = socket.getOutputStream();
            for (int i = 0; i < 10 && System.nanoTime() < end; i++) {
                int length = 1 + ThreadLocalRandom.current().nextInt(file.length);
                out.write(head('f', length).array());
                check(Arrays.equals(in.readNBytes(length), 0, length, file, 0, length), "another file");
                byte[] sent = some(5000);
                out.write(head('e', sent.length).array());
                out.write(sent);
                check(Arrays.equals(in.readNBytes(sent.length), sent), "another echo");
                rounds[number]++;
            }
            socket.shutdownOutput();
            check(in.read() == -1, "no end of file");
        }
    }

    static final HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    static void http(int number) throws Exception {
        byte[] sent = some(60000);
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + web + "/"))
            .timeout(java.time.Duration.ofSeconds(30)).POST(HttpRequest.BodyPublishers.ofByteArray(sent)).build();
        check(Arrays.equals(client.send(request, HttpResponse.BodyHandlers.ofByteArray()).body(), sent), "another answer");
        rounds[number]++;
    }

    interface Work { void one(int number) throws Exception; }

    public static void main(String[] args) throws Exception {
        port = Integer.parseInt(args[0]);
        web = Integer.parseInt(args[1]);
        file = Files.readAllBytes(Path.of(args[2]));
        end = System.nanoTime() + Long.parseLong(args[3]) * 1_000_000_000L;
        Work[] kinds = { Client::channel, Client::socket, Client::http };
        ExecutorService threads = Executors.newFixedThreadPool(rounds.length);
        List<Future<?>> all = new ArrayList<>();
        for (int i = 0; i < rounds.length; i++) {
            int number = i;
            Work work = kinds[i % kinds.length];
            all.add(threads.submit(() -> { while (System.nanoTime() < end) work.one(number); return null; }));
        }
        for (Future<?> one : all) one.get();
        System.out.println(Arrays.toString(rounds));
        for (long one : rounds) check(one > 0, "a thread that never came to an end");
        System.exit(0);
    }
}
J
java="java -XX:+UseSerialGC -Xmx256m -cp $TMPDIR/classes"
check "compiles" javac -d "$TMPDIR/classes" "$TMPDIR/Server.java" "$TMPDIR/Client.java"
start $java -Dsun.net.httpserver.nodelay=true Server "$port" "$web" "$TMPDIR/file"
check "listens" listening "$port"
check "channels, sockets and HTTP" $java Client "$port" "$web" "$TMPDIR/file" "$seconds"
