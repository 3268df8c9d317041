package ginnel;

import java.io.IOException;

/** ginnel-cache's client for C, by JNI. A handle is for one thread at a time. */
final class Cache implements AutoCloseable {
  static {
    System.loadLibrary("ginnel_ycsb");
  }

  private final long handle;

  /** Connects to HOST:PORT, or to a unix socket by its path: a ginnel-cache or any memcached. */
  Cache(String address) throws IOException {
    handle = open(address);
  }

  /** Returns the value of a key, or null if there is none. */
  byte[] get(byte[] key) throws IOException {
    return get(handle, key);
  }

  /** Stores a value, and says whether it was. */
  boolean set(byte[] key, byte[] value) throws IOException {
    return set(handle, key, value);
  }

  /** Deletes a value, and says whether there was one. */
  boolean delete(byte[] key) throws IOException {
    return delete(handle, key);
  }

  /** Returns how many gets were read out of the server's memory. */
  long direct() {
    return counted(handle, true);
  }

  /** Returns how many gets the server answered. */
  long asked() {
    return counted(handle, false);
  }

  @Override
  public void close() {
    close(handle);
  }

  private static native long open(String address) throws IOException;

  private static native void close(long handle);

  private static native byte[] get(long handle, byte[] key) throws IOException;

  private static native boolean set(long handle, byte[] key, byte[] value) throws IOException;

  private static native boolean delete(long handle, byte[] key) throws IOException;

  private static native long counted(long handle, boolean directly);
}
