package ginnel;

import java.io.FileWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import java.util.concurrent.atomic.AtomicInteger;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.HistogramIterationValue;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * YCSB's door to a memcached or a ginnel-cache, both by the same client and with one codec.
 *
 * <p>An update stores a whole record, so workloads need writeallfields=true. YCSB counts whole
 * microseconds, which is too coarse for reads out of memory: each call is timed here, too, in
 * nanoseconds, codec included. Properties: ginnel.address; ginnel.warmup, for how many seconds
 * nothing is counted; ginnel.report, where each thread writes what it counted, with its number
 * appended.
 */
public final class GinnelDB extends DB {
  private static final AtomicInteger THREADS = new AtomicInteger();

  private final Histogram reads = new Histogram(3);
  private final Histogram updates = new Histogram(3);
  private Cache cache;
  private String report;
  private long from;
  private long begun;
  private long last;
  private long misses;
  private long failed;
  private long directBefore;
  private long askedBefore;

  @Override
  public void init() throws DBException {
    try {
      cache = new Cache(getProperties().getProperty("ginnel.address", "127.0.0.1:11211"));
    } catch (IOException error) {
      throw new DBException(error);
    }
    report = getProperties().getProperty("ginnel.report");
    double warmup = Double.parseDouble(getProperties().getProperty("ginnel.warmup", "0"));
    from = System.nanoTime() + (long) (warmup * 1e9);
  }

  @Override
  public void cleanup() throws DBException {
    try {
      if (report != null) {
        write(report + "." + THREADS.getAndIncrement());
      }
    } catch (IOException error) {
      throw new DBException(error);
    } finally {
      cache.close();
    }
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    long at = System.nanoTime();
    try {
      byte[] record = cache.get(bytes(key));
      boolean whole = record != null && Codec.decode(record, fields, result);
      counted(reads, at);
      if (record == null) {
        misses++;
        return Status.NOT_FOUND;
      }
      return whole ? Status.OK : failed("no whole record");
    } catch (IOException error) {
      return failed(error.getMessage());
    }
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    long at = System.nanoTime();
    try {
      boolean stored = cache.set(bytes(key), Codec.encode(values));
      counted(updates, at);
      return stored ? Status.OK : failed("not stored");
    } catch (IOException error) {
      return failed(error.getMessage());
    }
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    return update(table, key, values);
  }

  @Override
  public Status delete(String table, String key) {
    try {
      return cache.delete(bytes(key)) ? Status.OK : Status.NOT_FOUND;
    } catch (IOException error) {
      return failed(error.getMessage());
    }
  }

  /** A cache has no order. */
  @Override
  public Status scan(
      String table, String start, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
    return Status.NOT_IMPLEMENTED;
  }

  private static byte[] bytes(String key) {
    return key.getBytes(StandardCharsets.UTF_8);
  }

  private void counted(Histogram histogram, long at) {
    long now = System.nanoTime();
    if (now >= from) {
      if (begun == 0) {
        begun = at;
        misses = 0;
        failed = 0;
        directBefore = cache.direct();
        askedBefore = cache.asked();
      }
      last = now;
      histogram.recordValue(now - at);
    }
  }

  private Status failed(String why) {
    if (failed++ == 0) {
      System.err.println("GinnelDB: " + why);
    }
    return Status.ERROR;
  }

  private void write(String path) throws IOException {
    try (PrintWriter out = new PrintWriter(new FileWriter(path))) {
      out.println("seconds " + (last - begun) / 1e9);
      out.println("misses " + misses);
      out.println("failed " + failed);
      out.println("direct " + (cache.direct() - directBefore));
      out.println("asked " + (cache.asked() - askedBefore));
      write(out, "read", reads);
      write(out, "update", updates);
      if (out.checkError()) {
        throw new IOException(path + ": not written");
      }
    }
  }

  /** Lines of a nanosecond value and how often it was seen. */
  private static void write(PrintWriter out, String what, Histogram histogram) {
    for (HistogramIterationValue value : histogram.recordedValues()) {
      out.println(what + " " + value.getValueIteratedTo() + " " + value.getCountAddedInThisIterationStep());
    }
  }
}
