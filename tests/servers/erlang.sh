#!/bin/sh
# Erlang: two nodes that send each other terms, and sockets of its runtime, by the old driver and by the new module (inet_backend).
. "${0%/*}/lib.sh"
needs erl erlc epmd
ERL_EPMD_PORT=$(port)
export ERL_EPMD_PORT HOME="$TMPDIR"
version erl -noshell -eval 'io:format("Erlang/OTP ~s, erts ~s~n", [erlang:system_info(otp_release), erlang:system_info(version)]), halt().'
cat >"$TMPDIR/both.erl" <<'R'
-module(both).
-export([node_of_echo/0, terms/1, serve/1, sockets/1]).

-define(PATIENCE, 60000).

usec() -> erlang:monotonic_time(microsecond).
until(Seconds) -> usec() + list_to_integer(Seconds) * 1000000.

%% Another node: what is sent to its process comes back.
node_of_echo() ->
    register(echo, spawn(fun echo/0)),
    receive after infinity -> ok end.

echo() -> receive {From, Term} -> From ! {self(), Term}, echo() end.

terms([Name, Seconds]) ->
    Node = list_to_atom(Name),
    Echo = found(Node, 300),
    Calls = calls(Echo, until(Seconds), 0),
    Sent = [{I, binary:copy(<<I:32>>, I rem 200)} || I <- lists:seq(1, 50000)],
    [Echo ! {self(), Term} || Term <- Sent],
    [receive {Echo, Term} -> ok after ?PATIENCE -> exit({late, I}) end || {I, _} = Term <- Sent],
    Large = binary:copy(<<"0123456789abcdef">>, 1000000),
    [begin Echo ! {self(), Large}, receive {Echo, Large} -> ok after ?PATIENCE -> exit(late) end end || _ <- lists:seq(1, 5)],
    monitor_node(Node, true),
    rpc:cast(Node, erlang, halt, []),
    receive {nodedown, Node} -> ok after ?PATIENCE -> exit(no_word_of_its_end) end,
    io:format("~p calls~n", [Calls]),
    halt(0).

found(_, 0) -> exit(no_such_node);
found(Node, Tries) ->
    case net_adm:ping(Node) =:= pong andalso rpc:call(Node, erlang, whereis, [echo]) of
        Echo when is_pid(Echo) -> Echo;
        _ -> timer:sleep(200), found(Node, Tries - 1)
    end.

calls(Echo, End, I) ->
    Echo ! {self(), I},
    receive {Echo, I} -> ok after ?PATIENCE -> exit({late, I}) end,
    case usec() < End of true -> calls(Echo, End, I + 1); false -> I end.

%% Sockets of one of the two backends.
backend("inet") -> [];
backend("socket") -> [{inet_backend, socket}].

options(Backend, Active) -> backend(Backend) ++ [binary, {packet, 4}, {active, Active}, {nodelay, true}].

serve([Backend, Port]) ->
    {ok, Listener} = gen_tcp:listen(list_to_integer(Port), options(Backend, false) ++ [{ip, {127, 0, 0, 1}}, {backlog, 100}]),
    accept(Listener).

accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    Server = spawn(fun() -> receive go -> answer(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Server),
    Server ! go,
    accept(Listener).

answer(Socket) ->
    inet:setopts(Socket, [{active, once}]),
    receive
        {tcp, Socket, Bytes} -> ok = gen_tcp:send(Socket, Bytes), answer(Socket);
        {tcp_closed, Socket} -> ok
    end.

sockets([Backend, Port, Seconds]) ->
    Open = fun(Active) ->
        {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, list_to_integer(Port), options(Backend, Active)),
        Socket
    end,
    Calls = receives(Open(false), until(Seconds), 0),
    Crowd = [spawn_monitor(fun() -> messages(Open(true), Number, 300) end) || Number <- lists:seq(1, 30)],
    [receive {'DOWN', Monitor, process, _, Why} -> normal = Why after ?PATIENCE -> exit(late) end || {_, Monitor} <- Crowd],
    Socket = Open(false),
    Large = binary:copy(<<"0123456789">>, 1500000),
    [begin
        spawn(fun() -> ok = gen_tcp:send(Socket, Large) end),
        {ok, Large} = gen_tcp:recv(Socket, 0, ?PATIENCE)
    end || _ <- lists:seq(1, 10)],
    ok = gen_tcp:shutdown(Socket, write),
    {error, closed} = gen_tcp:recv(Socket, 0, ?PATIENCE),
    io:format("~p calls~n", [Calls]),
    halt(0).

receives(Socket, End, I) ->
    ok = gen_tcp:send(Socket, <<I:32>>),
    {ok, <<I:32>>} = gen_tcp:recv(Socket, 0, ?PATIENCE),
    case usec() < End of
        true -> receives(Socket, End, I + 1);
        false -> {error, timeout} = gen_tcp:recv(Socket, 0, 100), I
    end.

messages(Socket, _, 0) -> gen_tcp:close(Socket);
messages(Socket, Number, I) ->
    Sent = binary:copy(<<Number:8, I:24>>, 1 + (I * Number * 37) rem 5000),
    ok = gen_tcp:send(Socket, Sent),
    receive {tcp, Socket, Sent} -> ok after ?PATIENCE -> exit({late, Number, I}) end,
    messages(Socket, Number, I - 1).
R
quiet="erl -noshell -noinput -pa $TMPDIR"
both() { timeout $((seconds + 150)) $quiet "$@"; }
check "compiles" erlc -o "$TMPDIR" "$TMPDIR/both.erl"
epmd -port "$ERL_EPMD_PORT" -daemon
start $quiet -name "one@$address" -setcookie tested -run both node_of_echo
check "terms to another node" both -name "two@$address" -setcookie tested -run both terms "one@$address" "$((seconds / 3))"
for backend in inet socket; do
    port=$(port)
    start $quiet -run both serve "$backend" "$port"
    check "listens ($backend)" listening "$port"
    check "sockets ($backend)" both -run both sockets "$backend" "$port" "$((seconds / 3))"
done
epmd -port "$ERL_EPMD_PORT" -kill >/dev/null
